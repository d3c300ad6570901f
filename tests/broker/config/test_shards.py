"""The configuration of each process of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.config.test_configuration import load, refusal

from headrace_broker.config import shards
from headrace_broker.config.configuration import Config
from headrace_broker.config.shards import (
    count_problem,
    has_siblings,
    leftover_problem,
    process_ids,
    shard_config,
    shard_count,
)

FILE = """\
[node]
id = 2
name = "n2"
data_dir = "{store}"
shards = {shards}

[listeners]
metrics = "0.0.0.0:15692"
https = "0.0.0.0:15671"

[tls]
certificate_file = "c"
key_file = "k"

[cluster]
listen = "0.0.0.0:7100"
frames_port = 7110
join_secret_file = "s"
nodes = [
    {{ id = 1, name = "n1", address = "a:7100" }},
    {{ id = 2, name = "n2", address = "b:7100" }},
]

[logging]
audit_file = "audit.log"

[limits]
connections_max = 1001
"""


def config_of(directory: Path, shards: int | str) -> Config:
    return load(directory, FILE.format(store=directory / "store", shards=repr(shards)))


def test_the_first_process_is_the_node(tmp_path: Path) -> None:
    config = config_of(tmp_path, 2)
    first = shard_config(config, 0, 2)
    assert (first.node, first.cluster, first.listeners) == (
        config.node,
        config.cluster,
        config.listeners,
    )
    assert first.limits.connections_max == 500
    assert first.log.cache_bytes == config.log.cache_bytes // 2
    assert has_siblings(first)
    assert process_ids(first) == {2, 66}


def test_further_processes_have_places_of_their_own(tmp_path: Path) -> None:
    config = config_of(tmp_path, 3)
    third = shard_config(config, 2, 3)
    assert (third.node.id, third.node.name) == (130, "n2:2")
    assert third.node.data_dir == str(tmp_path / "store" / "shard-2")
    assert third.address == "b:7300"
    assert third.cluster.nodes[:2] == config.cluster.nodes, "they found the cluster without it"
    assert (third.cluster.listen, third.cluster.frames_port) == ("0.0.0.0:7300", 7310)
    assert third.listeners.amqp == config.listeners.amqp
    assert third.listeners.grpc == config.listeners.grpc
    assert (third.listeners.http, third.listeners.https) == ("", "")
    assert third.listeners.metrics == "0.0.0.0:15892"
    assert third.logging.audit_file == "audit.log-shard-2"
    assert process_ids(third) == {2, 66, 130}


def test_one_process_is_the_default(tmp_path: Path) -> None:
    config = config_of(tmp_path, 1)
    assert shard_count(config) == 1
    assert not has_siblings(config)
    assert process_ids(config) == {2}


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (3, 1), (4, 2), (9, 4), (64, 8)])
def test_auto_is_half_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, count: int
) -> None:
    monkeypatch.setattr(shards, "core_count", lambda: cores)
    assert shard_count(config_of(tmp_path, "auto")) == count


def test_auto_takes_no_process_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "core_count", lambda: 1)
    config = config_of(tmp_path, "auto")
    (tmp_path / "store" / "shard-1").mkdir(parents=True)
    assert shard_count(config) == 2
    assert leftover_problem(config, 2) == ""


def test_data_of_a_process_that_would_not_run_are_no_secret(tmp_path: Path) -> None:
    config = config_of(tmp_path, 2)
    (tmp_path / "store" / "shard-1").mkdir(parents=True)
    (tmp_path / "store" / "shard-2").mkdir()
    problem = leftover_problem(config, shard_count(config))
    assert problem.startswith(
        f"node.shards: 2, but {tmp_path}/store/shard-2 holds the data of n2:2"
    )
    assert "node.shards = 3" in problem
    assert leftover_problem(config, 3) == ""


@pytest.mark.parametrize(
    ("count", "old", "new", "problem"),
    [
        (2, "", "", ""),
        (1, "0.0.0.0:15671", "0.0.0.0:7200", ""),
        (9, "", "", "9 on each of 2 nodes are more than 16"),
        (
            2,
            "0.0.0.0:15671",
            "0.0.0.0:7200",
            "n2:1, listening for other nodes: port 7200 is that of",
        ),
        (2, "frames_port = 7110", "frames_port = 65500", "port 65600 is more than 65535"),
        (
            2,
            "frames_port = 7110",
            "frames_port = 7200",
            "n2:1, listening for other nodes: port 7200",
        ),
        (2, "a:7100", "b:7200", "n2:1 would have the address of n1"),
        (2, 'id = 1, name = "n1"', 'id = 66, name = "n1"', "n2:1 would have the id of another"),
    ],
)
def test_places_of_processes_are_judged(
    tmp_path: Path, count: int, old: str, new: str, problem: str
) -> None:
    text = FILE.format(store=tmp_path / "store", shards=1)
    assert old in text
    found = count_problem(load(tmp_path, text.replace(old, new) if old else text), count)
    assert problem in found
    assert bool(found) is bool(problem)


def test_bad_numbers_are_refused(tmp_path: Path) -> None:
    text = FILE.format(store="store", shards="'many'")
    assert refusal(tmp_path, text) == (
        "node.toml: node.shards: 'many' is not allowed; it must be 'auto' or an integer from 1 to 8"
    )
    assert "node.shards: 9 must be" in refusal(tmp_path, FILE.format(store="store", shards=9))
