"""Spark finds data sources in modules of such names: this one has `headrace_queue`."""

from headrace_pipeline.sources.queue.source import QueueDataSource


class DefaultSource(QueueDataSource):
    """See `headrace_pipeline.sources.queue`."""
