"""Sinks of Spark that write to a broker."""
