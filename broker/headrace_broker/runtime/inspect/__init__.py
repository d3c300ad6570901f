"""Single messages of a queue, for people: browse, move, publish."""
