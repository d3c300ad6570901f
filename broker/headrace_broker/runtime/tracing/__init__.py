"""Spans of single messages, by OpenTelemetry."""
