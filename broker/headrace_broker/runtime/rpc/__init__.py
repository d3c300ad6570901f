"""Requests to other nodes and their answers."""
