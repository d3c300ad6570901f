"""A log read back when its node starts."""
