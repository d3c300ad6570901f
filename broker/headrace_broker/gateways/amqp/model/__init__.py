"""Values of the AMQP gateway: tables of states."""
