"""Spark finds this module by its name, and with it the source `headrace_log`."""

from headrace_pipeline.sources.log.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
