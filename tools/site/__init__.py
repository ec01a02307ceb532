"""The documentation as a site: hooks for MkDocs, and the check of what it wrote."""
