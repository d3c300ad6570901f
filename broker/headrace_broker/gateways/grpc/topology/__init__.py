"""The service Topology: what a cluster defines."""
