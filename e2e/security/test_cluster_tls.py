"""Nodes that prove to each other who they are, as processes of their own."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.harness.authority import Authority
from e2e.harness.cluster import wait_for
from e2e.harness.ports import free_block

from headrace_broker.cli.session.api_client import ApiClient

SERVE = (sys.executable, "-P", "-m", "headrace_broker.cli", "serve")
NAMES = ("n1", "n2", "n3")


class Nodes:
    """Configurations of three nodes, and their certificates."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self.directory = directory
        self.port = base_port
        self.authority = Authority(directory, "cluster")
        self.stranger = Authority(directory, "stranger")
        nodes = ", ".join(
            f'{{ id = {number}, name = "{name}", address = "127.0.0.1:{base_port + number}" }}'
            for number, name in enumerate(NAMES, 1)
        )
        for number, name in enumerate(NAMES, 1):
            self.show(name, self.authority)
            (directory / f"{name}.toml").write_text(f"""\
[node]
id = {number}
name = "{name}"
data_dir = "{directory / name}"
[cluster]
nodes = [{nodes}]
[limits]
disk_free_bytes_min = 0
[listeners]
grpc = ""
amqp = "127.0.0.1:{base_port + 10 + number}"
http = "127.0.0.1:{base_port + 20 + number}"
[cluster_tls]
certificate_file = "{directory / name}.pem"
key_file = "{directory / name}.key"
ca_file = "{directory / name}-ca.pem"
""")

    def show(self, name: str, authority: Authority) -> None:
        """Give a node a certificate of an authority; its trusted authorities stay."""
        authority.sign("/CN=node", name, alternative_names=f"DNS:{name}")
        (self.directory / f"{name}-ca.pem").write_bytes(self.authority.file.read_bytes())

    def api(self, name: str) -> ApiClient:
        return ApiClient(f"127.0.0.1:{self.port + 20 + NAMES.index(name) + 1}")

    def is_ready(self, name: str) -> bool:
        return not self.api(name).not_ready_reason()

    def serves(self, process: str) -> bool:
        return f"node {process} serves AMQP" in self.log(process.partition(":")[0])

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(encoding="utf-8")

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [*SERVE, "--config", str(self.directory / f"{name}.toml")]
        with (
            (self.directory / f"{name}.log").open("ab") as output,
            subprocess.Popen(command, stdout=output, stderr=output) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()
                process.wait(20)


@pytest.mark.full
def test_a_node_with_a_certificate_of_another_authority_stays_outside(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, free_block(30))
    with nodes.running("n1"), nodes.running("n2"):
        with nodes.running("n3"):
            for name in NAMES:
                wait_for(name, functools.partial(nodes.is_ready, name))
        nodes.show("n3", nodes.stranger)
        with nodes.running("n3"):
            refused = "node 3 at 127.0.0.1"
            wait_for("the refusal", lambda: refused in nodes.log("n1").partition("is down")[2])
            wait_for(
                "the reason", lambda: "CERTIFICATE_VERIFY_FAILED" in nodes.log("n1"), seconds=30
            )
            assert nodes.api("n3").not_ready_reason()
            assert not nodes.api("n1").not_ready_reason()
        nodes.show("n3", nodes.authority)
        with nodes.running("n3"):
            wait_for("n3 to be back", lambda: not nodes.api("n3").not_ready_reason())


def test_all_processes_of_a_node_show_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_NODE_SHARDS", "2")
    nodes = Nodes(tmp_path, free_block(130))
    with nodes.running("n1"), nodes.running("n2"), nodes.running("n3"):
        for name in NAMES:
            wait_for(name, functools.partial(nodes.serves, f"{name}:1"))
            wait_for(name, functools.partial(nodes.is_ready, name))
