"""Facts about flow control, and reasons why a publisher or a queue is slow."""
