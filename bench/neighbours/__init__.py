"""Clients that do much of one thing, and the one beside them whose latency is measured."""
