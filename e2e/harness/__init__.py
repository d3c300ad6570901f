"""Real clusters, publishers and consumers for the end-to-end tests."""
