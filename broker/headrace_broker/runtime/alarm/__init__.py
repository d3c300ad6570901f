"""Memory and disk of a node: stages, alarms, and memory that is given back."""
