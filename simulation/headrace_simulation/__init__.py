"""Tools that test the replicated log: a cluster simulator, a crash explorer, files in memory."""
