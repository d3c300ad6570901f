"""The gRPC gateway, one room for each service."""
