"""Cluster metadata as a replicated machine: definitions, permissions, policies and placement."""
