"""A gateway's end of the conversation with one queue, wherever that is led."""
