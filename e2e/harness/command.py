"""Commands as a person would run them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from e2e.harness.cluster import Cluster


def run_command(cluster: Cluster, command: Sequence[str], node: str = "n1", code: int = 0) -> str:
    """Run a command against a node.

    Returns:
        What it printed, or where it had to fail, what it complained of.

    Raises:
        AssertionError: it did not end with `code`.
    """
    environment = {**os.environ, "HEADRACE_API": cluster.node(node).http}
    environment.pop("COLUMNS", None)  # what is no terminal has no width
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr
