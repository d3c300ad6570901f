"""Settings of all tests: hypothesis repeats the same examples on every run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("headrace", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("headrace")
