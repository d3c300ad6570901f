"""Overload: loads, what they do to a broker, and how that is judged."""
