"""Client connections: listed, counted, their rates, and direct replies to them."""
