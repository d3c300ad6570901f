from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.flow.explanation import (
    binding_group,
    binding_limit,
    explain_connection,
    explain_queue,
)
from headrace_broker.flow.facts import Facts
from headrace_broker.model.flow import CONNECTION, EXPIRY, LIMIT_NAMES
from headrace_broker.model.flow_status import (
    AccountStatus,
    ActivityStatus,
    AlarmStatus,
    BalanceStatus,
    BroughtStatus,
    ConnectionFlow,
    GateFlow,
    NodeFlow,
    QueueFlow,
)

MIB = 1 << 20
GROUP = 7
LIMITS = {
    "account_messages": 1000,
    "account_bytes": 8 * MIB,
    "credit": 400,
    "queue_commands": 32,
    "queue_pending_bytes": 16 * MIB,
}


def stopped(limit: str, ten: float, group: int = GROUP, now: bool = True) -> ActivityStatus:
    shares = (1.0 if now else 0.0, ten, ten / 2)
    return ActivityStatus(limit if now else "", group if now else 0, 12_000, shares, {
        limit: (*shares, group)
    })  # fmt: skip


def connection(shown: ActivityStatus, **more: Any) -> ConnectionFlow:
    name = "10.0.0.5:4711 -> 10.0.1.1:5672"
    row = ConnectionFlow("n1/1/1", name, "", "n1", "app", "/", "flow", shown)
    return msgspec.structs.replace(row, **more)


def account(number: int, user: str, messages: int, byte_count: int, rate: float) -> AccountStatus:
    name = f"10.0.0.{number}:5123 -> 10.0.1.3:5672"
    balance = BalanceStatus(GROUP, messages, byte_count, rate / 1000, rate)
    return AccountStatus(f"n3/1/{number}", CONNECTION, name, "n3", user, "/", messages, byte_count,
                         balances=(balance,))  # fmt: skip


def own(messages: int, byte_count: int, rate: float) -> AccountStatus:
    found = account(5, "app", messages, byte_count, rate)
    return msgspec.structs.replace(found, account="n1/1/1", node="n1")


def queue(**more: Any) -> QueueFlow:
    row = QueueFlow(
        "/", "orders", GROUP, "n2",
        ready=50_000, ready_bytes=60 * MIB, unsettled=300, unsettled_bytes=4 * MIB,
        consumers=3, busy=3,
        arrived=(4000.0, 4000.0, 4000.0), delivered=(120.0,) * 3, settled=(120.0,) * 3,
        saturated=True, deferred=900,
        high_bytes=64 * MIB, low_bytes=48 * MIB, held_messages=50_300, held_bytes=64 * MIB,
    )  # fmt: skip
    return msgspec.structs.replace(row, **more)


def brought(number: int, user: str, *slices: tuple[int, int, int], **more: Any) -> BroughtStatus:
    """Messages of a connection: ages in milliseconds, messages, bytes."""
    name = f"10.0.0.{number}:5123 -> 10.0.1.3:5672"
    row = BroughtStatus(f"n3/1/{number}", CONNECTION, name, "n3", user, GROUP, slices=slices)
    return msgspec.structs.replace(row, **more)


OWN = brought(5, "app", (1000, 10_060, MIB), account="n1/1/1", node="n1")


def facts(**more: Any) -> Facts:
    found = Facts()
    found.queue = queue()
    found.queue_names = {GROUP: ("/", "orders")}
    found.nodes = [NodeFlow(node, limits=LIMITS) for node in ("n1", "n2", "n3")]
    found.accounts = [own(10, MIB, 0.0), account(9, "batch", 900, 2 * MIB, 200_000.0)]
    found.brought = [OWN, brought(9, "batch", (1000, 40_240, 63 * MIB))]
    for name, value in more.items():
        setattr(found, name, value)
    return found


BATCH = "; 80 % of its load came from 10.0.0.9:5123 (user batch)"
FILLED = (
    "; 40,240 of its 50,300 messages (63 MiB of 64 MiB) were brought by 10.0.0.9:5123 (user batch)"
)
OF_THEM = "; this connection brought 10,060 of them"
WHO = "conn 10.0.0.5:4711 (user app, vhost /)"
ALARM = AlarmStatus("n3", "memory-alarm", "memory used: 620 MiB of 600 MiB")
SPREAD = "spread the load over more queues, or raise {} with `headrace flow limits set`"

# limit, facts, what the connection holds; sentence, hint
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    (
        "watermark",
        {},
        {},
        f"{WHO} had confirms deferred 83 % of the last 10 s by queue 'orders' (leader n2): its "
        "watermark of 64 MiB is passed because its 3 consumers, whose prefetch is full, "
        f"acknowledge 120/s of 4,000/s{FILLED}{OF_THEM}",
        "add consumers to 'orders' or have them acknowledge sooner, or raise high-watermark-bytes "
        "with a policy",
    ),
    (
        "watermark",
        {"queue": queue(consumers=0, busy=0, high_bytes=0, high_messages=1, low_messages=0)},
        {},
        f"{WHO} had confirms deferred 83 % of the last 10 s by queue 'orders' (leader n2): its "
        "watermark of 1 message is passed because it has no consumers and 50,300 messages"
        f"{FILLED}{OF_THEM}",
        "add consumers to 'orders', or raise high-watermark with a policy",
    ),
    (
        "watermark",
        {"queue": queue(consumers=1, busy=0, saturated=False, held_bytes=0, settled=(0, 4000, 0))},
        {},
        f"{WHO} had confirms deferred 83 % of the last 10 s by queue 'orders' (leader n2): its "
        "watermark was passed because its 1 consumer acknowledges 4,000/s and 50,300 messages wait"
        f"{FILLED}{OF_THEM}",
        "look at the consumers of 'orders', which could hold more than they do, or raise "
        "high-watermark-bytes with a policy",
    ),
    (
        "queue-pending-bytes",
        {
            "gates": [
                GateFlow("n3", GROUP, 5, 9, 0),
                GateFlow("n1", GROUP, 16 * MIB, 16 * MIB, 12, False),
            ]
        },
        {},
        f"{WHO} was held 83 % of the last 10 s by queue 'orders' (leader n2): 16 MiB of 16 MiB "
        "that publishers on n1 may have pending there are not applied, and 12 channels wait; it "
        f"takes 4,000/s{BATCH}",
        SPREAD.format("node-buffer-bytes and queue-pending-bytes"),
    ),
    (
        "queue-outflow",
        {"gates": [GateFlow("n3", GROUP, 5, 9, 0), GateFlow("n1", GROUP, 5, 9, 2, False, 40)]},
        {},
        f"{WHO} was held 83 % of the last 10 s by queue 'orders' (leader n2): its consumers "
        "take what they can, 120/s, and 50,000 messages wait, so a node may bring 40/s at most"
        f"{FILLED}{OF_THEM}",
        "add consumers to 'orders', or raise their prefetch; if n2 is busy, move queues or clients "
        "away from it",
    ),
    (
        "queue-commands",
        {},
        {},
        f"{WHO} was held 83 % of the last 10 s by queue 'orders' (leader n2): 32 batches of one of "
        f"its channels are not applied there; it takes 4,000/s{BATCH}",
        SPREAD.format("queue-commands"),
    ),
    (
        "account",
        {"accounts": [own(1000, 3 * MIB, 0.0), account(9, "batch", 900, MIB, 0.0)]},
        {"owed_messages": 1000, "owed_bytes": 3 * MIB},
        f"{WHO} was held 83 % of the last 10 s by queue 'orders' (leader n2): it has caused 1,000 "
        "messages (3 MiB) that are not done and may cause 1,000 or 8 MiB; it takes 4,000/s; "
        "75 % of its load is this connection's own",
        SPREAD.format("account-messages or account-bytes"),
    ),
    (
        "credit",
        {"queue": None},
        {},
        f"{WHO} was held 83 % of the last 10 s by node n1, where it is connected: a channel has "
        "400 publishes that it has not passed on",
        SPREAD.format("credit"),
    ),
    (
        "memory-alarm",
        {"queue": None, "nodes": [NodeFlow("n1", (ALARM,))], "queues": [queue()]},
        {"state": "blocked"},
        f"{WHO} has been blocked for 12 s by the memory alarm of node n3: memory used: 620 MiB of "
        "600 MiB; the largest queue is 'orders' (64 MiB); 80 % of what publishers brought lately "
        "came from 10.0.0.9:5123 (user batch)",
        "consume or purge the largest queues, or give the node more memory",
    ),
    (
        "disk-alarm",
        {"queue": None, "accounts": []},
        {"state": "blocked", "flow": stopped("disk-alarm", 0.4, 0, now=False)},
        f"{WHO} was blocked 40 % of the last 10 s by a disk alarm that is over",
        "consume or purge the largest queues, or give the node more disk",
    ),
    (
        "publish-rate",
        {"queue": None, "publish_rates": ("user 'app' may publish 100 messages per second",)},
        {},
        f"{WHO} was held 83 % of the last 10 s by the publish rate of its user or vhost: user "
        "'app' may publish 100 messages per second",
        "raise publish-rate-messages or publish-rate-bytes of user 'app' or vhost '/'",
    ),
    (
        "intake",
        {"queue": None},
        {},
        f"{WHO} was held 83 % of the last 10 s by node n1, where it is connected: deliveries to "
        "consumers that wait go first",
        "connect to a node that does less, or raise intake-messages with `headrace flow limits "
        "set`",
    ),
    (
        "node-buffer-bytes",
        {"queue": None},
        {"buffered_bytes": MIB},
        f"{WHO} was held 83 % of the last 10 s by node n1, where it is connected: 1 MiB of its "
        "publishes wait already and their bound is reached",
        "look at what holds it first, or raise node-buffer-bytes with `headrace flow limits set`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "known", "more", "sentence", "hint"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_each_limit_has_its_sentence_and_hint(
    limit: str, known: dict[str, Any], more: dict[str, Any], sentence: str, hint: str
) -> None:
    row = connection(stopped(limit, 0.83), **more)
    found = explain_connection(row, facts(**known))
    assert found.sentence == sentence
    assert found.hint == hint
    assert (found.limit, found.state) == (limit, row.state)


def test_all_limits_have_a_sentence() -> None:
    assert {case[0] for case in CASES} == set(LIMIT_NAMES) - {""}


def test_a_connection_that_nothing_stops_is_said_to_run() -> None:
    found = explain_connection(connection(ActivityStatus(), state="running"), Facts())
    assert found.sentence == (
        f"{WHO} is not held: nothing has stopped its publishes in the last minute"
    )
    assert (found.limit, found.hint, found.leader, found.causes) == ("", "", "", ())


def test_a_connection_that_an_alarm_waits_for_is_told_so() -> None:
    known = Facts()
    known.nodes = [NodeFlow("n1", (ALARM,)), NodeFlow("n2", (ALARM,))]
    found = explain_connection(connection(ActivityStatus(), state="blocking"), known)
    assert found.sentence == f"{WHO} may not publish: memory-alarm on n3; it has not since"


def test_causes_are_ranked_by_what_is_owed_and_came_lately() -> None:
    accounts = [account(n, "u", 0, 0, 1000.0 * n) for n in (1, 4, 3)]
    accounts.append(account(2, "u", 1, 20_000, 0.0))
    causes = explain_queue(queue(saturated=False), facts(accounts=accounts)).causes
    assert [cause.account for cause in causes] == ["n3/1/4", "n3/1/3", "n3/1/2", "n3/1/1"]
    assert [cause.share for cause in causes] == [0.4, 0.3, 0.2, 0.1]
    assert (causes[2].messages, causes[2].byte_count) == (1, 20_000)
    assert {(cause.vhost, cause.queue) for cause in causes} == {("/", "orders")}


def test_the_brokers_own_activities_are_causes_too() -> None:
    expiry = AccountStatus("n2/expiry", EXPIRY, EXPIRY, "n2", "", "", 1, 9, balances=(
        BalanceStatus(GROUP, 1, 9),
    ))  # fmt: skip
    full = [GateFlow("n1", GROUP, 16 * MIB, 16 * MIB, 1, False)]
    found = explain_queue(queue(saturated=False), facts(accounts=[expiry], gates=full))
    assert found.sentence.endswith("; 100 % of its load came from messages that expire on n2")


GONE = {"gone": True, "user_provided_name": "culprit"}


def victim(**more: Any) -> Facts:
    """Facts when one message came to a queue that an account filled that has left."""
    small = brought(5, "app", (200, 1, 200), account="n1/1/1", node="n1", byte_rate=8.0)
    known = facts(
        queue=queue(consumers=0, ready=35_025, unsettled=0, ready_bytes=64 * MIB + 200,
                    unsettled_bytes=0),
        accounts=[own(0, 0, 8.0)],
        brought=[small, brought(9, "batch", (41_000, 35_024, 64 * MIB), **GONE)],
    )  # fmt: skip
    for name, value in more.items():
        setattr(known, name, value)
    return known


def test_who_filled_a_queue_is_named_when_it_is_gone() -> None:
    left = (
        "; 35,024 of its 35,025 messages (64 MiB of 64 MiB) were brought by culprit "
        "(10.0.0.9:5123, user batch), which is gone and brought the last of them 41 s ago"
    )
    found = explain_connection(connection(stopped("watermark", 0.5)), victim())
    assert found.sentence.endswith(f"{left}; this connection brought 1 of them")
    assert found.shares_of == "backlog"
    assert [(cause.account, cause.gone) for cause in found.causes] == [
        ("n3/1/9", True),
        ("n1/1/1", False),
    ]
    assert [cause.queued_messages for cause in found.causes] == [35_024, 1]
    assert [cause.queued_bytes for cause in found.causes] == [64 * MIB, 200]
    assert sum(cause.share for cause in found.causes) == pytest.approx(1)
    assert found.causes[1].share < 0.001
    found = explain_queue(victim().queue or queue(), victim())
    assert found.sentence.endswith(left)


def test_a_queue_of_which_nobody_remembers_who_filled_it_says_so() -> None:
    """As after a restart of the node that they came in through."""
    small = brought(5, "app", (200, 1, 200), account="n1/1/1", node="n1")
    found = explain_connection(connection(stopped("watermark", 0.5)), victim(brought=[small]))
    assert found.sentence.endswith(
        "35,025 messages; 1 of its 35,025 messages (200 B of 64 MiB) was brought by this "
        "connection itself; no node that answered remembers who brought 35,024 of its 35,025 "
        "messages"
    )
    assert [(cause.kind, cause.queued_messages) for cause in found.causes] == [
        ("unknown", 35_024),
        (CONNECTION, 1),
    ]
    assert found.causes[0].share > 0.999
    found = explain_connection(connection(stopped("watermark", 0.5)), victim(brought=[]))
    assert found.sentence.endswith(
        "; no node that answered remembers who brought its 35,025 messages; 100 % of what is owed "
        "there and came in the last 10 s is this connection's own"
    )
    assert found.shares_of == "load"


def test_who_is_not_to_be_known_has_no_name_when_gone() -> None:
    hidden = dict.fromkeys(("account", "name", "node", "user", "user_provided_name"), "")
    known = victim()
    known.brought[1] = msgspec.structs.replace(known.brought[1], **hidden)
    found = explain_connection(connection(stopped("watermark", 0.5)), known)
    assert "were brought by another user's connection, which is gone and brought" in found.sentence


def test_a_queue_says_what_it_stops() -> None:
    found = explain_queue(queue(), facts())
    assert (found.state, found.limit) == ("flow", "watermark")
    assert found.sentence == (
        "queue 'orders' (vhost /, leader n2) is saturated: its watermark of 64 MiB is passed "
        "because its 3 consumers, whose prefetch is full, acknowledge 120/s of 4,000/s; it "
        f"defers the confirms of 900 messages{FILLED}"
    )
    calm = queue(saturated=False)
    gates = [GateFlow("n1", GROUP, 16 * MIB, 16 * MIB, 1, False)]
    held = [connection(stopped("queue-pending-bytes", 0.5))]
    found = explain_queue(calm, facts(gates=gates, held=held))
    assert found.limit == "queue-pending-bytes"
    assert found.sentence.startswith(
        "queue 'orders' (vhost /, leader n2) holds 1 publisher back: 16 MiB of 16 MiB"
    )
    gates = [GateFlow("n1", GROUP, 5, 9, 1, True, 40)]
    found = explain_queue(calm, facts(gates=gates, held=[connection(stopped("queue-outflow", 1))]))
    assert found.limit == "queue-outflow"
    assert found.sentence.startswith(
        "queue 'orders' (vhost /, leader n2) holds 1 publisher back: its consumers take what"
    )
    behind = msgspec.structs.replace(calm, behind=True)
    found = explain_queue(behind, facts())
    assert (found.state, found.limit) == ("flow", "queue-outflow")
    assert found.sentence.startswith(
        "queue 'orders' (vhost /, leader n2) is behind: publishers bring more than its 3 consumers "
        "take, 120/s, so it confirms no more than leave it"
    )
    assert found.hint.startswith(
        "add consumers to 'orders', or raise their prefetch; if n2 is busy"
    )
    held = [connection(stopped("account", 0.2)), connection(stopped("queue-commands", 0.5))]
    found = explain_queue(calm, facts(held=held))
    assert found.limit == "queue-commands"
    found = explain_queue(calm, facts(held=[connection(stopped("memory-alarm", 1.0))]))
    assert (found.state, found.limit) == ("running", "")
    assert found.sentence == (
        "queue 'orders' (vhost /, leader n2) holds nobody back: 4,000/s arrive, 120/s are "
        "settled, 50,000 messages ready"
    )


def test_a_publisher_that_nothing_stops_hears_for_which_confirms_it_waits() -> None:
    behind = queue(saturated=False)
    behind = msgspec.structs.replace(behind, behind=True)
    found = explain_connection(connection(ActivityStatus()), facts(queue=behind))
    assert (found.limit, found.queue, found.leader) == ("queue-outflow", "orders", "n2")
    assert "goes at the pace of queue 'orders' (leader n2): publishers bring more" in found.sentence
    found = explain_connection(connection(stopped("account", 0.5)), facts(queue=behind))
    assert found.limit == "account"
    assert "and may cause" in found.sentence
    assert "so it confirms no more than leave it" in found.sentence


def activity(limit: str, group: int, **by_limit: tuple[float, float, float, int]) -> ActivityStatus:
    renamed = {name.replace("_", "-"): each for name, each in by_limit.items()}
    return ActivityStatus(limit, group, 5, (0.0, 0.0, 0.0), renamed)


@pytest.mark.parametrize(
    ("flow", "limit", "group"),
    [
        (activity("", 0), "", 0),
        (activity("credit", 3), "credit", 3),
        (activity("credit", 3, credit=(0.1, 0.1, 0.1, 3), account=(0, 0.5, 0.1, 4)), "account", 4),
        (activity("credit", 3, account=(0.0, 0.0, 0.9, 4)), "credit", 3),
        (activity("", 0, account=(0.0, 0.0, 0.9, 4), credit=(0, 0, 0.1, 3)), "account", 4),
        (activity("memory-alarm", 0, account=(0.9, 0.9, 0.9, 4)), "memory-alarm", 0),
        (
            activity("", 0, queue_pending_bytes=(0, 0.5, 0, 4), watermark=(0, 0.5, 0, 5)),
            "queue-pending-bytes",
            4,
        ),
    ],
)
def test_the_binding_limit_is_what_took_most_of_the_time(
    flow: ActivityStatus, limit: str, group: int
) -> None:
    assert (binding_limit(flow), binding_group(flow, None)) == (limit, group)


def test_the_queue_behind_a_debt_is_that_of_the_deepest_balance() -> None:
    balances = (BalanceStatus(3, 1, 10), BalanceStatus(4, 5, 50), BalanceStatus(5, 9, 20))
    owner = msgspec.structs.replace(own(0, 0, 0.0), balances=balances)
    flow = activity("account", 0)
    assert binding_group(flow, owner) == 4
    assert binding_group(flow, own(0, 0, 0.0)) == GROUP
    assert binding_group(flow, None) == 0
