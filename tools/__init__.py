"""Tools for maintainers. The package neither ships nor imports them."""
