"""One suite for every adapter of the ports, and one for each adapter's own ways to fail."""
