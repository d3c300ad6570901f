"""The gRPC listener, and what every call goes through."""
