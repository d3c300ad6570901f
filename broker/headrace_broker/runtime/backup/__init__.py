"""Points of queues that a backup reads."""
