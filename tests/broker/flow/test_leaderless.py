"""Explanations name a queue that has no leader before anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.flow.explanation import explain_connection, explain_queue
from headrace_broker.flow.facts import Facts
from headrace_broker.model.flow_status import (
    ActivityStatus,
    ConnectionFlow,
    GateFlow,
    LeaderlessStatus,
    QueueFlow,
)

SILENT = QueueFlow("/", "live", 7, "")
STATUS = LeaderlessStatus("/", "live", 12_000, 60_000, 3, ("n2", "n3"))
REASON = (
    "has had no leader that can be reached for 12 s: its publishes wait for one and are refused "
    "after leaderless-ms, 60 s; most of its 3 replicas are down or cut off (n2, n3)"
)
HINT = "bring back the nodes of its replicas: headrace queue members list live"


def facts(status: LeaderlessStatus | None = STATUS) -> Facts:
    found = Facts()
    found.queue, found.leaderless = SILENT, status
    return found


def connection(flow: ActivityStatus) -> ConnectionFlow:
    return ConnectionFlow("n1/1/1", "10.0.0.5:4711 -> x", "", "n1", "app", "/", "running", flow)


def test_a_queue_without_a_leader_is_said_to_have_none_and_no_figure_is_made_up() -> None:
    found = explain_queue(SILENT, facts())
    assert found.sentence == f"queue 'live' (vhost /) {REASON}"
    assert (found.limit, found.state, found.leader, found.since_ms) == (
        "leaderless", "flow", "", 12_000,
    )  # fmt: skip
    assert found.hint == HINT
    assert found.details == {"gates": [], "leaderless": STATUS}


@pytest.mark.parametrize(
    ("more", "text", "hint"),
    [
        ({"vhost": "a b"}, "queue 'live' (vhost a b) has had", f"{HINT} --vhost 'a b'"),
        ({"refused_after_ms": 0}, "its publishes wait for one; most of", HINT),
        ({"since_ms": None}, "has no leader that can be reached: its publishes wait", HINT),
        (
            {"since_ms": 61_000},
            "are refused until there is one, because leaderless-ms, 60 s, has passed; most",
            HINT,
        ),
        ({"replicas": 1, "down": ("n2",)}, "; its only replica is down or cut off (n2)", HINT),
        (
            {"down": ("n2",)},
            "; 1 of its 3 replicas is down or cut off (n2)",
            "wait for an election, and look at its replicas: headrace queue members list live",
        ),
    ],
)
def test_the_reason_says_what_is_known(more: dict[str, Any], text: str, hint: str) -> None:
    found = explain_queue(SILENT, facts(msgspec.structs.replace(STATUS, **more)))
    assert text in found.sentence
    assert found.hint == hint


def test_a_leader_that_has_not_answered_is_not_an_empty_name_and_no_zeros() -> None:
    found = explain_queue(SILENT, facts(None))
    assert found.sentence == (
        "queue 'live' (vhost /, leader unknown) holds nobody back: its leader has not answered"
    )
    assert "queue" not in found.details


def test_a_connection_whose_publishes_wait_for_a_leader_is_told_so() -> None:
    found = explain_connection(connection(ActivityStatus()), facts())
    assert found.sentence == (
        "conn 10.0.0.5:4711 (user app, vhost /) has messages that wait: queue 'live' (vhost /) "
        f"{REASON}"
    )
    assert (found.limit, found.queue, found.leader) == ("leaderless", "live", "")
    assert (found.since_ms, found.hint) == (12_000, HINT)


def test_full_pending_bytes_of_a_queue_without_a_leader_advise_no_raised_limit() -> None:
    limit = "queue-pending-bytes"
    flow = ActivityStatus(limit, 7, 5_000, (1.0, 0.5, 0.1), {limit: (1.0, 0.5, 0.1, 7)})
    known = facts()
    known.gates = [GateFlow("n1", 7, 1 << 20, 1 << 20, 1, False)]
    found = explain_connection(connection(flow), known)
    assert (found.limit, found.hint, found.since_ms) == (limit, HINT, 5_000)
    assert found.sentence == (
        "conn 10.0.0.5:4711 (user app, vhost /) was held 50 % of the last 10 s by queue 'live' "
        "(leader unknown): 1 MiB of 1 MiB that publishers on n1 may have pending there are not "
        f"applied; it {REASON}"
    )
