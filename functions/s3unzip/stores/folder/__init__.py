"""Files and folders as sources, destinations and run stores."""
