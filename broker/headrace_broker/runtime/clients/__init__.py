"""Client connections: listed, counted, and their rates."""
