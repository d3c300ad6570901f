"""What is to be done next, as a function of what is seen: no I/O, no clock."""
