"""The pipeline on one machine: worker processes, folders, web servers as sources."""
