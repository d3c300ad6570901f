"""The catalog on this node, membership, and where replicas and leaders are."""
