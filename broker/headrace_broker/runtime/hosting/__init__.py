"""The replicas on this node, and the sessions that talk to them."""
