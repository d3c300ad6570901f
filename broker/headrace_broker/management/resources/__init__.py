"""Resources of the HTTP API, one module for each noun."""
