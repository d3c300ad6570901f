"""A broker node, put together of its parts."""
