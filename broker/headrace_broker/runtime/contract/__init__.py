"""Interfaces and values that the rooms of the runtime share."""
