"""Registers the sink `headrace`: Spark looks for `DefaultSource` in modules named pyspark_*."""

from headrace_pipeline.sinks.exchange.writer import ExchangeSink


class DefaultSource(ExchangeSink):
    """`df.write.format("headrace")` and `df.writeStream.format("headrace")`."""
