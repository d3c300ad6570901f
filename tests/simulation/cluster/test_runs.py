"""Runs of whole clusters, each in a process of its own, whose standard library is replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.harness.release import HistoryMissingError, releases, unpack

from headrace_simulation.cluster.history import CONFIRMED, History
from headrace_simulation.cluster.world import NS, World

SIMULATION = Path(__file__).parents[3] / "simulation"
SOURCES = [SIMULATION.parent / name for name in ("raftlog", "broker", "simulation")]


def run(*arguments: str, hash_seed: str = "0", interpreted: bool = False) -> tuple[int, str]:
    """Run the command; return how it ended, and what it said."""
    path = os.pathsep.join(map(str, SOURCES if interpreted else SOURCES[-1:]))
    if os.environ.get("PYTHONPATH"):
        path = os.pathsep.join((path, os.environ["PYTHONPATH"]))
    done = subprocess.run(
        [sys.executable, "-m", "headrace_simulation.cluster", *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_one_seed_gives_one_run() -> None:
    """It does not depend on the hashes of the process."""
    digests = set()
    for hash_seed in ("1", "2"):
        code, text = run("--seed", "3", "--profile", "everything", hash_seed=hash_seed)
        assert code == 0, text
        found = re.search(r"digest (\w+)", text)
        assert found is not None
        digests.add(found[1])
    assert len(digests) == 1


@pytest.mark.parametrize("profile", ["moves", "several", "shards", "drains"])
def test_clusters_go_through_faults(profile: str) -> None:
    code, text = run("--seeds", "0:1", "--profile", profile, "--jobs", "1")
    assert code == 0, text
    assert "1 seeds, 0 failed" in text


def test_nodes_of_a_release_run_beside_those_of_the_head() -> None:
    try:
        source = unpack(releases()[-1])
    except HistoryMissingError as error:
        pytest.skip(str(error))
    arguments = ("--seeds", "0:1", "--profile", "versions", "--jobs", "1")
    code, text = run("--release", str(source), *arguments)
    assert code == 0, text
    assert "1 seeds, 0 failed" in text
    code, text = run(*arguments)
    assert (code, text) == (1, "seed 0 is of profile 'versions', which needs --release\n")


def test_bugs_are_found() -> None:
    """A run finds them early, and is well without them."""
    names = ("redeliveries-unmarked", "prefetch-ignored", "messages-overtake")
    code, text = run("--mutation", ",".join(names), "--jobs", "1", interpreted=True)
    assert code == 0, text
    for name in names:
        assert f"{name}: found by run 1, seed 0" in text
    code, text = run("--seeds", "0:1", "--profile", "calm", "--jobs", "1")
    assert code == 0, text


def test_bugs_of_nodes_with_several_processes_are_found() -> None:
    """Their profiles find them early, and are well without them."""
    found = {
        "placement-ignores-nodes": (0, "has two replicas in one node"),
        "moves-within-a-node-unchecked": (0, "has two replicas in one node"),
        "further-processes-vote": (0, "a further process votes on the catalog"),
        "drains-of-first-processes-alone": (0, "was drained, and"),
    }
    code, text = run("--mutation", ",".join(found), "--jobs", "1", interpreted=True)
    assert code == 0, text
    for name, (seed, problem) in found.items():
        [line] = [line for line in text.splitlines() if line.startswith(f"{name}: ")]
        assert f"found by run {seed + 1}, seed {seed}: " in line
        assert problem in line


def test_batches_run_further_profiles_beside_those_of_the_seeds() -> None:
    code, text = run("--seeds", "0:46", "--runs")
    assert code == 0, text
    runs = [tuple(line.split()) for line in text.splitlines()]
    beside = [(seed, name) for seed in ("0", "23") for name in ("shards", "drains")]
    assert [each for each in runs if each[1] in ("shards", "drains")] == beside
    own = [each for each in runs if each not in beside]
    assert [seed for seed, _ in own] == [str(seed) for seed in range(46)]
    assert own[0] == ("0", "calm")
    assert own[22] == ("22", "versions")
    assert [name for _, name in own[:23]] == [name for _, name in own[23:]]
    assert run("--seeds", "0:2", "--profile", "drains", "--runs") == (0, "0 drains\n1 drains\n")


def test_all_bugs_are_described() -> None:
    code, text = run("--mutation", "list", interpreted=True)
    assert code == 0, text
    names = [line.partition(":")[0] for line in text.splitlines()]
    described = (SIMULATION / "README.md").read_text()
    assert len(set(names)) == len(names) > 40
    assert [name for name in names if f"`{name}`" not in described] == []


class TestHistory:
    def test_confirmed_message_that_nobody_was_given_is_lost(self) -> None:
        history = _history()
        history.confirmed(b"p.1 ")
        assert [message.body for message in history.lost()] == [b"p.1 "]
        history.accepts("q", b"p.1 ")
        assert history.lost() == []

    def test_message_that_was_given_to_somebody_who_died_is_lost(self) -> None:
        history = _history()
        history.delivered("q", "c", 0, b"p.2 ", redelivered=False)
        assert [message.body for message in history.lost()] == [b"p.2 "]
        history.delivered("q", "d", 0, b"p.2 ", redelivered=True)
        history.accepts("q", b"p.2 ")
        assert history.lost() == []

    def test_message_that_nobody_rejected_is_not_dead_lettered(self) -> None:
        history = _history()
        history.targets["q"] = "dead"
        history.delivered("dead", "d", 0, b"p.1 ", redelivered=False)
        assert "was dead-lettered, and not rejected" in history.problem

    def test_message_does_not_come_after_its_time(self) -> None:
        world = World(1)
        history = _history(world)
        history.ttl_ns["q"] = NS
        history.delivered("q", "c", 0, b"p.1 ", redelivered=False)
        assert history.problem == ""
        world.run(2)
        history.delivered("q", "c", 0, b"p.2 ", redelivered=False)
        assert "came from q after 2.0 s" in history.problem

    @pytest.mark.parametrize(
        ("numbers", "problem"),
        [((2,), ""), ((1,), "dropped b'p.2 '"), ((1, 2), "had 2 messages"), ((), "had 0")],
    )
    def test_short_queue_keeps_its_newest(self, numbers: tuple[int, ...], problem: str) -> None:
        history = _history()
        history.lengths["q"] = 1
        for number in (1, 2):
            history.confirmed(b"p.%d " % number)
        for number in numbers:
            history.delivered("q", "c", 0, b"p.%d " % number, redelivered=False)
        history.check_lengths()
        assert problem in history.problem
        assert bool(problem) == bool(history.problem)

    def test_rejected_message_must_come_where_it_is_dead_lettered(self) -> None:
        history = _history()
        history.targets["q"] = "dead"
        history.confirmed(b"p.1 ")
        history.delivered("q", "c", 0, b"p.1 ", redelivered=False)
        history.rejected("q", b"p.1 ")
        assert len(history.lost()) == 1
        history.delivered("dead", "d", 0, b"p.1 ", redelivered=False)
        assert history.lost() == []
        assert history.problem == ""

    @pytest.mark.parametrize(
        ("queue", "body", "problem"),
        [
            ("q", b"p.3 ", "never published"),
            ("other", b"p.1 ", "was delivered from other"),
            ("q", b"p.2 ", "came to c unmarked"),
            ("q", b"p.1 ", "was given b'p.1 ' after number 2"),
        ],
    )
    def test_delivery_that_must_not_be(self, queue: str, body: bytes, problem: str) -> None:
        history = _history()
        history.delivered("q", "c", 0, b"p.2 ", redelivered=False)
        history.delivered(queue, "c", 0, body, redelivered=False)
        assert problem in history.problem

    def test_accepted_message_does_not_come_to_a_later_consumer(self) -> None:
        world = World(1)
        history = _history(world)
        history.delivered("q", "c", 0, b"p.1 ", redelivered=False)
        world.run(1)
        history.accepted("q", b"p.1 ")
        history.delivered("q", "early", 0, b"p.1 ", redelivered=True)
        assert history.problem == ""
        world.run(1)
        history.delivered("q", "late", world.now_ns, b"p.1 ", redelivered=True)
        assert "comes again" in history.problem

    def test_second_confirm(self) -> None:
        history = _history()
        history.confirmed(b"p.1 ")
        assert history.messages[b"p.1 "].state == CONFIRMED
        history.confirmed(b"p.1 ")
        assert "confirmed twice" in history.problem


def _history(world: World | None = None) -> History:
    history = History(world or World(1))
    history.published("q", b"p.1 ")
    history.published("q", b"p.2 ")
    return history
