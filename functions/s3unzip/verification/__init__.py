"""Compare the objects of a destination with an archive; nothing is written."""
