"""Limits on what a node takes in: turns of the loop, gates, quotas, debts across nodes."""
