"""The data pipeline of Headrace on PySpark: sources, a sink and jobs."""

__version__ = "0.1.0"
