"""Nodes that know each other by a secret, as processes of their own, and a stranger."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from e2e.harness.cluster import wait_for
from e2e.harness.ports import free_block

from headrace_broker.cli.session.api_client import ApiClient

SERVE = (sys.executable, "-P", "-m", "headrace_broker.cli", "serve")
SECRET = "the secret that the nodes of this cluster share"
OTHER = "a secret that somebody else has made up, as long"


class Nodes:
    """Configurations of nodes that listen for each other on all addresses."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self._directory = directory
        self._port = base_port

    def configure(self, number: int, secret: str, names: int = 2, more: str = "") -> None:
        """Write a node's configuration, and its secret."""
        name, port = f"n{number}", self._port + number
        nodes = ", ".join(
            f'{{ id = {each}, name = "n{each}", address = "127.0.0.1:{self._port + each}" }}'
            for each in sorted({*range(1, names + 1), number})
        )
        (self._directory / f"{name}.secret").write_text(secret)
        (self._directory / f"{name}.toml").write_text(f"""\
[node]
id = {number}
name = "{name}"
data_dir = "{self._directory / name}"
[cluster]
listen = "0.0.0.0:{port}"
nodes = [{nodes}]
{f'join_secret_file = "{self._directory / name}.secret"' if secret else ""}
{more}
[limits]
disk_free_bytes_min = 0
[listeners]
grpc = ""
amqp = "127.0.0.1:{port + 20}"
http = "127.0.0.1:{port + 40}"
""")

    def api(self, number: int) -> ApiClient:
        return ApiClient(f"127.0.0.1:{self._port + number + 40}")

    def is_ready(self, number: int) -> bool:
        return not self.api(number).not_ready_reason()

    def log(self, number: int) -> str:
        return (self._directory / f"n{number}.log").read_text(encoding="utf-8")

    @contextlib.contextmanager
    def running(self, number: int) -> Iterator[subprocess.Popen[bytes]]:
        command = [*SERVE, "--config", str(self._directory / f"n{number}.toml")]
        with (
            (self._directory / f"n{number}.log").open("ab") as output,
            subprocess.Popen(command, stdout=output, stderr=output) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()
                process.wait(20)


def test_a_stranger_stays_outside_and_who_has_the_secret_comes_in(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, free_block(50))
    nodes.configure(1, "")
    with nodes.running(1) as refused:
        assert refused.wait(30) != 0
    assert "is not loopback, and whoever reaches it could join" in nodes.log(1)

    for number in (1, 2):
        nodes.configure(number, SECRET, more="admit_nodes = true")
    with nodes.running(1), nodes.running(2):
        for number in (1, 2):
            wait_for(f"n{number}", functools.partial(nodes.is_ready, number))
        nodes.configure(3, OTHER)
        with nodes.running(3):
            wait_for("the refusal", lambda: "another join secret" in nodes.log(1))
            wait_for("the refusal there", lambda: "another join secret" in nodes.log(3))
            assert not nodes.is_ready(3)
        assert "n3" not in str(nodes.api(1).overview())
        nodes.configure(3, SECRET)
        with nodes.running(3):
            wait_for("n3", functools.partial(nodes.is_ready, 3))
        for number in (1, 2, 3):
            assert SECRET not in nodes.log(number)
