"""A replica of a queue: its log, its machine, and the feeds of its consumers."""
