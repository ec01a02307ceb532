"""The only place of the version: the build, the command line and the report page read it."""

__version__ = "0.1.0"
