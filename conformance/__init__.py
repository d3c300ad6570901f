"""The test suites of third-party clients, run against Headrace or RabbitMQ."""
