"""An AMQP channel: its publishes, deliveries and acknowledgements."""
