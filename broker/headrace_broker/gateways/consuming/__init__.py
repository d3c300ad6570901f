"""Parts that consumers of every protocol share."""
