"""Bugs that are put into production code, to see whether runs find them."""
