"""Messages of an AMQP channel: published, confirmed, delivered, acknowledged, in transactions."""
