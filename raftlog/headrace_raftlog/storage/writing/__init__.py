"""The thread that writes and syncs, and its jobs."""
