"""Queues, routing, gateways and management of a message broker whose flow control works."""
