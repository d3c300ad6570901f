"""The replicated state machine of a queue."""
