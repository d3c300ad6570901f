"""Effects of each command on the state of a queue."""
