"""Events in the log of a node: names, levels, fields, and the loggers that write them."""
