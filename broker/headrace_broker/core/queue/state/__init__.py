"""State of a queue: waiting messages, sessions, leases and the archive."""
