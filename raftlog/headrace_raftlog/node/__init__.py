"""A node with many Raft groups: their pump, membership, snapshots, repair and reads."""
