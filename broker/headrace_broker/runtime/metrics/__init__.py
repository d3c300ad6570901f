"""Metrics of a node for Prometheus, one module for each subject."""
