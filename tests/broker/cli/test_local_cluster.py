"""Local clusters: generated files, affected processes, refusals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace_broker.cli import local_cluster
from headrace_broker.cli.local_cluster import (
    ClusterError,
    LocalCluster,
    LocalNode,
    check_ports_free,
    last_words,
    node_environment,
    render_config,
)
from headrace_broker.cli.process import (
    ProcessRecord,
    RunningProcess,
    identify,
    read_record,
    write_record,
)
from headrace_broker.config.configuration import load_config

OBEDIENT = "print('up', flush=True); import signal; signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + OBEDIENT


def spawn(code: str) -> subprocess.Popen[bytes]:
    """A Python process that runs `code` and has printed a line."""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    return child


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends at SIGTERM."""
    with spawn(OBEDIENT) as process:
        yield process
        process.kill()


def record_of(child: subprocess.Popen[bytes]) -> ProcessRecord:
    record = identify(child.pid)
    assert record is not None
    return record


def test_added_node_is_configured_with_all_others_and_known_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(LocalCluster, "_start_node", lambda self, node: started.append(node.name))
    monkeypatch.setattr(local_cluster, "wait_ports_free", lambda node: None)
    cluster = LocalCluster(tmp_path, 2)
    cluster.nodes[0].directory.mkdir()
    added = cluster.add()
    assert started == ["n3"]
    assert added.amqp == "127.0.0.1:" + str(int(cluster.nodes[0].amqp.rpartition(":")[2]) + 2)
    assert LocalCluster.existing(tmp_path).nodes == cluster.nodes
    full = LocalCluster(tmp_path, local_cluster.NODES_MAX)
    with pytest.raises(ClusterError, match="which is the most"):
        full.add()


def test_generated_configurations_agree_and_load(tmp_path: Path) -> None:
    data = tmp_path / 'with "quotes" and ünïcode'
    cluster = LocalCluster(data, 3)
    for node in cluster.nodes:
        node.directory.mkdir(parents=True)
        node.config_file.write_text(render_config(node, cluster.nodes), encoding="utf-8")
    configs = [load_config(node.config_file, {}) for node in cluster.nodes]
    assert [config.node.name for config in configs] == ["n1", "n2", "n3"]
    assert {config.cluster for config in configs} == {configs[0].cluster}
    assert [config.address for config in configs] == [
        "127.0.0.1:7101",
        "127.0.0.1:7102",
        "127.0.0.1:7103",
    ]
    assert [config.listeners.amqp[-5:] for config in configs] == [":5672", ":5673", ":5674"]
    assert configs[2].listeners.http == "127.0.0.1:15674"
    assert configs[2].listeners.grpc == "127.0.0.1:7674"
    assert configs[1].node.data_dir == str(data / "n2" / "store")


def test_nodes_have_as_many_processes_as_they_were_told_until_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"  # tells what a node would be told, in place of being one
    python.write_text('#!/bin/sh\necho "$HEADRACE_NODE_SHARDS" >"$(dirname "$6")/told"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(local_cluster, "wait_ports_free", lambda node: None)
    monkeypatch.setenv("HEADRACE_NODE_SHARDS", "4")
    data = tmp_path / "data"

    def told(cluster: LocalCluster) -> list[tuple[object, str]]:
        for child in cluster._children.values():
            child.wait()
        return [
            (load_config(node.config_file, {}).node.shards, (node.directory / "told").read_text())
            for node in cluster.nodes
        ]

    def start(shards: int = 0) -> list[tuple[object, str]]:
        cluster = LocalCluster(data, 2, shards=shards)
        cluster.start()
        return told(cluster)

    assert start() == [(1, "4\n")] * 2  # the environment alone says it
    assert start(1) == [(1, "1\n")] * 2
    assert start() == [(1, "1\n")] * 2
    assert start(2) == [(2, "2\n")] * 2
    assert start() == [(2, "2\n")] * 2
    assert start(3) == [(3, "3\n")] * 2
    cluster = LocalCluster.existing(data)
    cluster.add()
    assert told(cluster) == [(3, "3\n")] * 3


def test_ports_and_processes_of_before_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(local_cluster, "wait_ports_free", lambda node: None)

    def start(base_port: int = 0, shards: int = 0) -> list[tuple[str, int]]:
        cluster = LocalCluster(tmp_path, 2, base_port or LocalCluster.port_of(tmp_path), shards)
        cluster.start()
        cluster.stop()
        return [(node.amqp, node.shards) for node in cluster.nodes]

    assert start() == [("127.0.0.1:5672", 0), ("127.0.0.1:5673", 0)]
    assert start(9000, 2) == [("127.0.0.1:9000", 2), ("127.0.0.1:9001", 2)]
    assert start() == [("127.0.0.1:9000", 2), ("127.0.0.1:9001", 2)]
    (tmp_path / "n2" / "store" / "shard-1").mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"shard-1 holds the data of n2:1"):
        start(shards=1)
    assert start() == [("127.0.0.1:9000", 2), ("127.0.0.1:9001", 2)]
    monkeypatch.setattr(LocalNode, "process", lambda node: object() if node.id == 1 else None)
    with pytest.raises(ClusterError, match="n1: started with another number of shards"):
        start(shards=3)


def test_places_that_nodes_were_given_are_kept_at_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(local_cluster, "wait_ports_free", lambda node: None)
    for _ in range(2):
        cluster = LocalCluster(tmp_path, 1)
        cluster.nodes = (msgspec.structs.replace(cluster.nodes[0], http="127.0.0.9:7"),)
        cluster.start()
        cluster.stop()
        assert [node.http for node in cluster.nodes] == ["127.0.0.9:7"]


def test_a_cluster_of_too_many_processes_is_refused(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 2, shards=8)
    with pytest.raises(ClusterError, match="8 on each of 3 nodes are more than 16"):
        LocalCluster(tmp_path, 3, shards=8)


def test_port_of_a_further_process_that_is_taken_is_named(tmp_path: Path) -> None:
    host = "127.0.0.99"  # where nothing else listens
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        node = LocalNode(1, "n1", tmp_path, "", "", f"{host}:{port - 200}", shards=2)
        check_ports_free(node)
        with pytest.raises(ClusterError, match=rf"port {port} \(nodes of n1\) is taken"):
            check_ports_free(msgspec.structs.replace(node, shards=3))


def test_nodes_know_each_other_by_a_secret_that_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: subprocess.Popen[bytes]
) -> None:
    def start(cluster: LocalCluster, node: LocalNode) -> None:
        node.directory.mkdir(exist_ok=True)
        cluster._write_config(node)

    monkeypatch.setattr(LocalCluster, "_start_node", start)
    monkeypatch.setattr(local_cluster, "wait_ports_free", lambda node: None)
    found: list[str] = []
    for _ in range(2):
        cluster = LocalCluster(tmp_path, 2)
        cluster.start()
        for node in cluster.nodes:
            config = load_config(node.config_file, {})
            assert config.cluster.admit_nodes
            secret = Path(config.cluster.join_secret_file)
            assert secret.stat().st_mode & 0o777 == 0o600
            found.append(secret.read_text(encoding="ascii"))
    assert len(set(found)) == 1
    assert len(found[0]) > 32
    # A node of an earlier release runs: those that start now would not let it in.
    first = cluster.nodes[0]
    first.config_file.write_text(render_config(first, cluster.nodes), encoding="utf-8")
    write_record(first.record_file, record_of(child))
    cluster.start()
    assert not load_config(cluster.nodes[1].config_file, {}).cluster.join_secret_file


def test_nodes_get_tuning_from_the_environment_and_no_place() -> None:
    tuning = {
        "HEADRACE_CLUSTER_BALANCE_LEADERS": "false",
        "HEADRACE_CLUSTER_TRANSPORT": "grpc",
        "HEADRACE_LIMITS_CHANNELS_MAX": "7",
        "PATH": "/bin",
    }
    place = {"HEADRACE_NODE_ID": "1", "HEADRACE_CLUSTER_NAME": "a", "HEADRACE_LISTENERS_AMQP": "b"}
    assert node_environment(tuning | place) == tuning


def test_an_existing_cluster_is_found_with_size_and_ports(tmp_path: Path) -> None:
    made = LocalCluster(tmp_path, 5, 20_000)
    for node in made.nodes:
        node.directory.mkdir(parents=True)
        node.config_file.write_text(render_config(node, made.nodes), encoding="utf-8")
    assert LocalCluster.existing(tmp_path).nodes == made.nodes


def test_no_cluster_is_an_error_that_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no local cluster below"):
        LocalCluster.existing(tmp_path / "nothing")


def test_data_of_a_cluster_of_another_size_is_refused(tmp_path: Path) -> None:
    made = LocalCluster(tmp_path, 3)
    made.nodes[0].directory.mkdir()
    made.nodes[0].config_file.write_text(render_config(made.nodes[0], made.nodes))
    with pytest.raises(ClusterError, match="belongs to a cluster of 3 nodes"):
        LocalCluster(tmp_path, 5).start()


def test_a_taken_port_is_named_and_nothing_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        base = port - local_cluster.GRPC_OFFSET
        if not 1024 < base < 65535 - local_cluster.HTTP_OFFSET:
            base = port
        cluster = LocalCluster(tmp_path, 1, base)
        with pytest.raises(ClusterError, match=rf"port {port} \((gRPC|AMQP) of n1\) is taken"):
            cluster.start()
    assert list(tmp_path.iterdir()) == []


def test_free_ports_are_no_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    node = LocalCluster(tmp_path, 1).nodes[0]
    address = f"127.0.0.1:{free}"
    check_ports_free(
        local_cluster.LocalNode(node.id, node.name, node.directory, address, address, address)
    )


def test_a_record_finds_the_process_it_was_made_for(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "process.json"
    record = record_of(child)
    write_record(path, record)
    assert read_record(path) == record
    child.terminate()
    child.wait()
    assert read_record(path) is None


def test_a_pid_that_went_to_another_process_is_never_signalled(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    record = record_of(child)
    other = ProcessRecord(pid=record.pid, started=record.started - 1, boot=record.boot)
    path = tmp_path / "process.json"
    write_record(path, other)
    assert read_record(path) is None
    with pytest.raises(ProcessLookupError), RunningProcess(other) as process:
        process.send(signal.SIGKILL)
    assert identify(child.pid) == record


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"pid": "x"}'])
def test_a_missing_or_damaged_record_is_no_process(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "process.json"
    if content is not None:
        path.write_bytes(content)
    assert read_record(path) is None


def test_a_process_name_with_brackets_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen(
        [str(program), "-c", OBEDIENT],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHOME": sys.base_prefix},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert record_of(process).started > record_of_self().started
        process.kill()


def record_of_self() -> ProcessRecord:
    record = identify(os.getpid())
    assert record is not None
    return record


def test_stop_ends_recorded_processes_and_kills_only_those_that_do_not_obey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "STOP_S_MAX", 1.0)
    cluster = LocalCluster(tmp_path, 3)
    with spawn(OBEDIENT) as obedient, spawn(STUBBORN) as stubborn, spawn(OBEDIENT) as stranger:
        for node, process in zip(cluster.nodes, (obedient, stubborn), strict=False):
            node.directory.mkdir()
            write_record(node.record_file, record_of(process))
        assert cluster.stop() == ["n2"]
        assert obedient.wait() == -signal.SIGTERM
        assert stubborn.wait() == -signal.SIGKILL
        assert stranger.poll() is None
        stranger.kill()
    assert [node.record_file.exists() for node in cluster.nodes] == [False, False, False]
    assert cluster.stop() == []


def test_waiting_for_a_node_that_ended_tells_its_last_words(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 1)
    log = cluster.nodes[0].log_file
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthe disk is on fire\n")
    with pytest.raises(ClusterError, match=r"(?s)node n1 ended: .*the disk is on fire"):
        cluster.wait_ready(5.0)


def test_last_words_are_few(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    assert last_words(path) == "it wrote nothing"
    path.write_text("\n".join(str(number) for number in range(100)))
    assert last_words(path, 2) == "98\n99"
