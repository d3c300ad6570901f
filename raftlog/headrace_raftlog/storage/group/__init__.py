"""One group's part of the log: index, compaction, snapshots."""
