"""The catalog is total and deterministic: any bytes, any interpreter, any place to resume."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import (
    ENVELOPE_BYTES,
    ENVELOPE_VERSION,
    Request,
    encode_envelope,
)
from headrace_broker.catalog.result import Inequivalent, Refused, Repeated
from headrace_broker.catalog.store import SnapshotError
from headrace_broker.catalog.version import CatalogVersionError
from headrace_broker.model.binding_key import binding_key
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import CATALOG_COMMAND_BYTES_MAX, TABLE_DEPTH_MAX

ROOT = Path(__file__).resolve().parents[3]
SEEDS = range(8)
STEPS = 250


def random_log(random_commands: Any, driver: Any, seed: int) -> list[bytes]:
    source = random_commands(seed)
    pick = random.Random(seed)
    for _ in range(STEPS):
        driver.do(source.next())
        if pick.random() < 0.1:
            assert driver.apply(pick.choice(driver.log)) == Repeated()
    log: list[bytes] = driver.log
    return log


def check(catalog: Catalog) -> None:
    """Every table says the same."""
    bindings = catalog.bindings()
    sources = [b for x in catalog.exchanges() for b in catalog.bindings_of_source(x.vhost, x.name)]
    arriving = [
        b for x in catalog.exchanges() for b in catalog.bindings_of_exchange(x.vhost, x.name)
    ]
    arriving += [b for q in catalog.queues() for b in catalog.bindings_of_queue(q.vhost, q.name)]
    assert sorted(map(binding_key, sources)) == sorted(map(binding_key, bindings))
    assert sorted(map(binding_key, arriving)) == sorted(map(binding_key, bindings))
    queues = catalog.queues()
    placed = [member for queue in queues for member in (*queue.members, *queue.leaving)]
    leaders = [queue.members[0] for queue in catalog.queues()]
    for node in catalog.nodes():
        assert catalog.replica_count(node.id) == placed.count(node.id)
        assert catalog.first_lead_count(node.id) == leaders.count(node.id)
    for queue in catalog.queues():
        assert catalog.queue_by_group(queue.group) is queue
        assert len(set(queue.members)) == len(queue.members) > 0
        assert set(queue.members).isdisjoint(queue.leaving)
        assert (queue in catalog.queues_of_owner(queue.owner)) == queue.exclusive


@pytest.mark.parametrize("seed", SEEDS)
def test_tables_stay_in_step(driver: Any, random_commands: Any, seed: int) -> None:
    source = random_commands(seed)
    for _ in range(STEPS):
        driver.do(source.next())
        check(driver.catalog)


@pytest.mark.parametrize("seed", SEEDS)
def test_snapshot_and_rest_of_the_log_equal_the_whole(
    driver: Any, random_commands: Any, seed: int
) -> None:
    log = random_log(random_commands, driver, seed)
    cut = random.Random(seed).randrange(len(log))
    first = Catalog()
    whole = []
    for index, data in enumerate(log, 1):
        if index == cut + 1:
            resumed = Catalog.restore(first.snapshot())
            assert resumed.digest() == first.digest()
            check(resumed)
        whole.append(first.apply(index, data))
        if index > cut:
            assert resumed.apply(index, data) == whole[-1]
    assert resumed.digest() == first.digest() == driver.catalog.digest()


@pytest.mark.parametrize("seed", SEEDS)
def test_contents_survive_a_snapshot_in_order(driver: Any, random_commands: Any, seed: int) -> None:
    random_log(random_commands, driver, seed)
    events = driver.catalog.contents()
    again = Catalog.restore(driver.catalog.snapshot()).contents()
    assert again == events
    assert len(events) > 10


def test_digest_does_not_depend_on_the_hash_seed(driver: Any, random_commands: Any) -> None:
    log = random_log(random_commands, driver, 99)
    script = (
        "import sys\n"
        "from headrace_broker.catalog.machine import Catalog\n"
        "catalog = Catalog()\n"
        "for index, line in enumerate(sys.stdin, 1):\n"
        "    catalog.apply(index, bytes.fromhex(line))\n"
        "print(catalog.digest())\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            input="\n".join(data.hex() for data in log),
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert digests == {driver.catalog.digest()}


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_change_nothing(data: bytes) -> None:
    catalog = Catalog()
    envelope = encode_envelope(Request(1, 1, 1), b"")
    for number, entry in enumerate((data, envelope + data), 1):
        if len(entry) >= ENVELOPE_BYTES and entry[0] > ENVELOPE_VERSION:
            with pytest.raises(CatalogVersionError):
                catalog.apply(number, entry)
            continue
        result, events = catalog.apply(number, entry)
        assert isinstance(result, Refused)
        assert events == []
    assert catalog.contents() == []


def test_damaged_commands_are_answered_or_are_later_ones(driver: Any, random_commands: Any) -> None:
    source = random_commands(5)
    pick = random.Random(5)
    answers = set()
    for number in range(3000):
        data = bytearray(encode_request(Request(2, 1, number + 1), source.next()))
        for _ in range(pick.randrange(3)):
            data[pick.randrange(ENVELOPE_BYTES, len(data))] = pick.randrange(256)
        try:
            answers.add(type(driver.apply(bytes(data))).__name__)
        except CatalogVersionError:
            driver.log.pop()  # the name of a command, damaged, may be that of a later one
        check(driver.catalog)
    assert {"Ok", "Exists", "NotFound", "Inequivalent", "Refused"} <= answers


def test_snapshot_of_what_is_none_is_an_error() -> None:
    for data in (b"", b"\xff", b"\x80", b"\xa2\xff\xff", b"\x91" * 100_000):
        with pytest.raises(SnapshotError):
            Catalog.restore(data)


class TestArguments:
    def test_depth_is_bounded(self, driver: Any) -> None:
        deepest: dict[str, Any] = {}
        for _ in range(TABLE_DEPTH_MAX - 1):
            deepest = {"t": deepest}
        driver.exchange("x", arguments=deepest)
        too_deep = Exchange("/", "y", "direct", arguments={"t": deepest})
        result = driver.do(commands.DeclareExchange(too_deep))
        assert result == Refused(f"arguments nest deeper than {TABLE_DEPTH_MAX}")

    def test_values_of_other_types_are_refused(self, driver: Any) -> None:
        # MessagePack extensions, and a table whose key is a number, where a value stands.
        driver.queue("q")
        binding = Binding("/", "amq.direct", "queue", "q", "", {"k": "HERE"})
        for value in (b"\xd4\x05\x00", b"\x81\x01\x01", b"\xd6\xff\x00\x00\x00\x00"):
            for command in (commands.Bind(binding), commands.Unbind(binding)):
                data = encode_request(Request(1, 1, len(driver.log) + 1), command)
                damaged = data.replace(b"\xa4HERE", value)
                assert damaged != data
                assert not isinstance(driver.apply(damaged), Repeated)
                assert driver.events == []

    def test_invalid_arguments_are_not_equivalent_either(self, driver: Any) -> None:
        driver.queue("q")
        command = commands.DeclareQueue("/", "q", "classic", arguments={"x-a": "HERE"})
        data = encode_request(Request(1, 1, len(driver.log) + 1), command)
        assert isinstance(driver.apply(data.replace(b"\xa4HERE", b"\xd4\x05\x00")), Inequivalent)

    def test_size_is_bounded(self, driver: Any) -> None:
        arguments = {"x-note": "n" * CATALOG_COMMAND_BYTES_MAX}
        result = driver.do(commands.DeclareQueue("/", "q", "classic", arguments=arguments))
        assert isinstance(result, Refused)
        assert str(CATALOG_COMMAND_BYTES_MAX) in result.reason

    def test_what_cannot_be_stored_is_an_error_of_the_proposer(self) -> None:
        for value in (1 << 70, object(), "\udc80", {1, object}):
            with pytest.raises(commands.CommandError):
                commands.encode_command(
                    commands.DeclareQueue("/", "q", "classic", arguments={"x": value})
                )
