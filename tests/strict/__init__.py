"""The rules of `embedded.strict`: what AWS refuses fails here too, and the rest works."""
