"""Frames and snapshots between nodes, and proofs of their identity."""
