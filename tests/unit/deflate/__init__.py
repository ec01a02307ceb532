"""Tests of the splitting of one deflate stream: bytes in, values out."""
