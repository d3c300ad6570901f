"""Log entries read from disk beside the event loop."""
