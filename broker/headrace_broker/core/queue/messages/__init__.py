"""Messages, batches and effects of a queue, as values and as bytes."""
