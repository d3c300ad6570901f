"""Settings of all tests: hypothesis repeats the same examples on every run."""

from __future__ import annotations

from importlib.util import find_spec

from hypothesis import settings

# Spark is not in every environment: make test-pipeline sees to it.
collect_ignore = [] if find_spec("pyspark") else ["pipeline"]

settings.register_profile("headrace", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("headrace")
