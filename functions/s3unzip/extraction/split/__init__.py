"""One huge deflated member over many tasks: scan, link, extract segments, finish."""
