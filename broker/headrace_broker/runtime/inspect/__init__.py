"""Single messages of a queue, for people: counted, looked at, moved, published."""
