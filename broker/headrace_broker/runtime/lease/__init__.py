"""Groups that lease messages of a queue."""
