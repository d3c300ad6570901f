"""A pytest plugin for the suites: writes down outcomes, and knows the broker.

It runs in the suites' environment and needs nothing but pytest and what the suite itself uses.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest

ORDER = {"passed": 0, "skipped": 1, "failed": 2}


class Recorder:
    """Appends one JSON line for each test as soon as it has ended."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._running: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of a test; the worst outcome of its phases is the test's."""
        empty = {"test": report.nodeid, "outcome": "passed", "seconds": 0.0, "detail": ""}
        record = self._running.setdefault(report.nodeid, empty)
        record["seconds"] += report.duration
        outcome = report.outcome
        if hasattr(report, "wasxfail"):  # the suite's own mark
            outcome = "skipped" if report.outcome == "skipped" else "passed"
        if ORDER[outcome] > ORDER[record["outcome"]]:
            record["outcome"] = outcome
            record["detail"] = report.longreprtext[-2000:]
        if report.when == "teardown":
            del self._running[report.nodeid]
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Start to record."""
    config.addinivalue_line("markers", "env: what the suite's own runner looks at")
    config.pluginmanager.register(Recorder(os.environ["CONFORMANCE_RECORD"]))


@pytest.fixture(scope="session")
def rabbitmq_container() -> SimpleNamespace:
    """Return the broker's address; aiormq's distribution leaves out the file with this fixture."""
    return SimpleNamespace(
        host=os.environ["CONFORMANCE_HOST"],
        ports={
            "5672/tcp": int(os.environ["CONFORMANCE_PORT"]),
            "5671/tcp": int(os.environ["CONFORMANCE_TLS_PORT"]),
        },
    )


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container: SimpleNamespace) -> object:
    """The broker's URL, likewise."""
    from yarl import URL

    return URL.build(
        scheme="amqp",
        user="guest",
        password="guest",
        path="//",
        host=rabbitmq_container.host,
        port=rabbitmq_container.ports["5672/tcp"],
    )
