"""Requests of all kinds, made of the API's own description: no fault, and only answers of it.

Schemathesis makes them. It holds answers against the description: statuses, content types, headers
and bodies; methods that are not described are refused with what is allowed. That a check says 503
is no fault of the node.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.harness.cluster import Cluster

CHECKS: Final = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance", "unsupported_method"),
)
# What is learnt of answers is used in requests: who makes them is not to lose the password.
RULES: Final = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]

[parameters]
"path.user" = "fuzz-user"
"""
# So that requests reach something that is there, or was until one of them removed it.
THERE: Final = """
"path.vhost" = "fuzz-vhost"
"path.queue" = "fuzz-queue"
"path.exchange" = "fuzz-exchange"
"path.source" = "fuzz-exchange"
"path.kind" = "q"
"path.destination" = "fuzz-queue"
"path.key" = "fuzz-key"
"path.node" = "n1"
"path.group" = "fuzz-group"
"""
LONG_EXAMPLES: Final = 100
LONG_SEEDS: Final = (2, 3, 5)
LONG_SECONDS: Final = 180  # of each of the eight runs of the full form, 24 minutes in all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A node of its own, since random requests may do anything to it."""
    with Cluster(tmp_path_factory.mktemp("fuzz") / "data", count=1) as cluster:
        yield cluster.node("n1")


@pytest.fixture(params=["random", "there"])
def config(request: pytest.FixtureRequest, node: Any, tmp_path: Path) -> Path:
    """Subjects of requests: random names, or existing objects."""
    file = tmp_path / "schemathesis.toml"
    file.write_text(RULES + (THERE if request.param == "there" else ""), encoding="utf-8")
    for path, body in (
        ("vhosts/fuzz-vhost", {}),
        ("users/fuzz-user", {"tags": "", "password": "secret"}),
        ("permissions/fuzz-vhost/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
        ("queues/fuzz-vhost/fuzz-queue", {}),
        ("exchanges/fuzz-vhost/fuzz-exchange", {"type": "topic"}),
    ):
        assert node.api.request("PUT", f"/api/{path}", body).status in (201, 204)
    return file


def fuzz(node: Any, config: Path, *words: str) -> None:
    """Run generated requests, and fail with their errors."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
        *(f"http://{node.http}/api/openapi.json", "--auth", "guest:guest", "--no-color"),
        *("--checks", ",".join(CHECKS), "--continue-on-failure", "--no-shrink"),
        *("--generation-database", "none", "--generation-with-security-parameters", "false"),
        *("--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "30"),
        *("--exclude-path", "/api/users/bulk-delete", *words),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=config.parent)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    assert node.api.get("/api/whoami")[0] == 200, "requests were refused for their log-in"


def test_requests_at_random_get_answers_that_are_described(node: Any, config: Path) -> None:
    fuzz(node, config, "--phases", "fuzzing", "--max-examples", "1", "--seed", "1")


@pytest.mark.full
def test_requests_at_the_edges_of_what_is_described_get_such_answers(
    node: Any, config: Path
) -> None:
    fuzz(node, config, "--phases", "coverage", "--max-time", str(LONG_SECONDS), "--seed", "1")


@pytest.mark.full
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_many_requests_at_random_get_answers_that_are_described(
    node: Any, config: Path, seed: int
) -> None:
    words = ("--phases", "fuzzing", "--max-examples", str(LONG_EXAMPLES))
    fuzz(node, config, *words, "--max-time", str(LONG_SECONDS), "--seed", str(seed))
