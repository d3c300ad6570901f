"""Logs that programs read in shards of numbered rows."""
