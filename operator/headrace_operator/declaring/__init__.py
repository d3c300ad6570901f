"""Declarations in a broker: read, compared, set and deleted over its API."""
