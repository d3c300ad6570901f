"""Calls over HTTP and gRPC take turns on the event loop."""
