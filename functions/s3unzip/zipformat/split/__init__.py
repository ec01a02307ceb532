"""Split archives (APPNOTE 8): their disks, and what an archive says of them."""
