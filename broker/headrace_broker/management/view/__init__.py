"""Objects of the HTTP API as JSON."""
