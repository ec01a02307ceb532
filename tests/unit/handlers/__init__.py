"""The functions, called as Lambda calls them."""
