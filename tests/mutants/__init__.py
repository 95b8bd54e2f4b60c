"""Mistakes made on purpose in a copy of the code, each of which a named test must notice."""
