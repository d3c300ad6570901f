"""A queue written to a snapshot and read back."""
