"""A command with the names, columns and exit codes of RabbitMQ's `rabbitmqctl`, over our API."""
