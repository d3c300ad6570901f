"""An AMQP 0-9-1 connection: socket, handshake, heartbeats, and its channels by number."""
