"""Samples and events of a node, noted each second, and the logs that others read them from."""
