"""Segment files and the records in them."""
