"""Parts that commands share: the API of a node, TLS, output and progress."""
