"""Options of sources and sinks, and the broker connections that they describe."""
