"""Next steps as functions of the observed state: no I/O, no clock."""
