"""Seeded runs of the real core and log on a simulated clock, network and disk, with checks."""
