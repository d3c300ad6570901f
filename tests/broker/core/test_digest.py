"""Digests of replicas: equal after every command, however a replica came by its state."""

from __future__ import annotations

import random

import pytest
from tests.broker.core.archive_log import archive_log
from tests.broker.core.conftest import PUBLISHER, QueueLog, batch, random_log, rich_log
from tests.broker.core.lease_log import lease_log

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine

SEEDS = 2
LOGS = [
    (kind, seed) for kind in (random_log, rich_log, lease_log, archive_log) for seed in range(SEEDS)
]


@pytest.mark.parametrize(("kind", "seed"), LOGS)
def test_replica_from_a_snapshot_has_the_digest_of_one_that_ran(kind: object, seed: int) -> None:
    chooser = random.Random(seed)
    whole, other = QueueMachine(), QueueMachine()
    log = kind(seed, 300)  # type: ignore[operator]
    for index, data in enumerate(log, 1):
        whole.apply(index, data)
        other.apply(index, data)
        for most in (3, 1 << 40):
            assert whole.digest(most) == other.digest(most), f"entry {index} of {len(log)}"
        if chooser.random() < 0.05:
            other = QueueMachine.restore(other.snapshot())


def test_digest_of_a_deep_queue_covers_its_head_and_the_number_of_the_others() -> None:
    def filled(*counts: int) -> QueueMachine:
        made = QueueLog()
        for count in counts:
            bodies = batch(*(b"x" for _ in range(count)))
            made.apply(command.encode_enqueue(PUBLISHER, made.published + 1, bodies))
            made.published += count
        return made.machine

    machine, other = filled(1, 1, 1, 2, 1), filled(1, 1, 1, 1, 2)
    assert machine.digest() != other.digest()
    assert machine.digest(3) == other.digest(3)
    assert machine.digest(4) != other.digest(4)
    assert filled(1, 1, 1, 1, 1).digest(3) != machine.digest(3)


def test_digest_shows_a_command_too_many() -> None:
    machine, other = QueueLog(), QueueLog()
    for each in (machine, other):
        each.enqueue(PUBLISHER, 1, 5)
    assert machine.machine.digest() == other.machine.digest()
    other.apply(command.encode_purge(PUBLISHER, 1))
    assert machine.machine.digest() != other.machine.digest()
