"""Bytes of AMQP frames, methods, field tables and batches, written and read."""
