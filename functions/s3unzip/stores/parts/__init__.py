"""Archives of several parts, read as one."""
