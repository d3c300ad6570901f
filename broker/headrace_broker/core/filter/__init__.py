"""Filters of consumers: the selector language, and conditions on parts of a message."""
