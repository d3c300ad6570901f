"""Crashes of the log at every call to the file system, each followed by a start and a check."""
