"""A log looked into, salvaged or set aside while its node is stopped."""
