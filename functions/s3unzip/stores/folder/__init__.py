"""Files and folders as sources, destinations and run stores.

`stores.factory` opens them. `placing` alone makes names below a folder, so none can leave it.
"""
