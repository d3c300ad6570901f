"""Frames and snapshots between nodes, and proofs of who they are."""
