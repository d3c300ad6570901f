"""Methods of AMQP 0-9-1 on an open channel."""
