"""A running node, and the port through which gateways use it."""
