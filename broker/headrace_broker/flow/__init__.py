"""Flow control as values: accounts, gates, credit, limits, and explanations of slowness."""
