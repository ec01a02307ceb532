"""An embedded AWS for the demo and the tests; never shipped, never imported by the package."""
