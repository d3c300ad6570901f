"""Commands of a queue, and their encoding in log entries."""
