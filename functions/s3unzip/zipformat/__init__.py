"""The ZIP core: bytes in, values out. It does no I/O and knows no object store."""
