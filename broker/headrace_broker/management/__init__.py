"""The HTTP API and web page of a node, put together."""
