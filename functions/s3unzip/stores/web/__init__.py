"""Archives on the web: one URL, read by ranges from a server that may be hostile.

`stores.factory` opens `source.WebSource`; all requests go through `requests`.
"""
