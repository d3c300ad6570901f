"""Routes from exchanges to queues, by each type of exchange."""
