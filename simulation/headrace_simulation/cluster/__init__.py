"""Whole production nodes in one process on a virtual clock, network and disk, from a seed."""
