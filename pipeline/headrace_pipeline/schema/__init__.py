"""Columns of logs, queues, archives and analyses."""
