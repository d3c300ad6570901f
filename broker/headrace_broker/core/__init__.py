"""The queue machine, routing and filters: deterministic, without I/O and without a clock."""
