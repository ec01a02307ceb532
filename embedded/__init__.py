"""An embedded AWS for the demo and the tests. The package neither ships nor imports it."""
