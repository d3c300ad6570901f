"""The configuration of a node: read from a file and the environment, and checked."""
