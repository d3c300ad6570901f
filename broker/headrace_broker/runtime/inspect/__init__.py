"""Single messages of a queue, for people: count, browse, move, publish."""
