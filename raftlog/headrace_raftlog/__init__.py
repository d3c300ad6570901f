"""Many Raft groups on one shared, fsynced, checksummed log per node."""
