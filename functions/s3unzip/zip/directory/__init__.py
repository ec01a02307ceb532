"""The central directory: locate it, read its headers, check them, index the members.

`locate.locate_directory`, then `reader.DirectoryReader`, then `index.IndexBuilder`.
"""
