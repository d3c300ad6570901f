"""The command `headrace-pipeline`."""
