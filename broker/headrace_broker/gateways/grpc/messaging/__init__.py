"""The service Messaging: publish streams and consume streams."""
