"""Options to repeat a schedule, and to judge it less strictly."""

from __future__ import annotations

import pytest
from e2e.chaos.linearizability import Reads


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options, which exist when pytest is given this folder as `make chaos` does."""
    parser.addoption("--seed", type=int, default=None, help="run the schedule of this seed alone")
    reads = [each.value for each in Reads]
    parser.addoption("--reads", default=Reads.OWN_ROUTING.value, choices=reads, help="see Reads")
