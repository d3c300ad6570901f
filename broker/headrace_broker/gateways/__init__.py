"""Protocols of clients: AMQP 0-9-1 and gRPC."""
