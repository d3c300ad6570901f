"""The log that all groups of a node share."""
