"""Definitions of a whole cluster, in and out, in the form of RabbitMQ."""
