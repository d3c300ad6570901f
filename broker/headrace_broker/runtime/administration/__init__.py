"""Requests of administrators to a node, and its status."""
