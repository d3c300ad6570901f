"""The service Export: logs of the broker for programs."""
