"""One destination object: metadata, stored form, conflict with what exists, multipart upload.

`planning`, `extraction`, `reporting` and `verification` use it. It reaches stores by their ports.
"""
