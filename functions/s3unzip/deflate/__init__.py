"""Splitting one deflate stream over workers: bytes in, values out, no I/O."""
