"""Telemetry as brokers write it, made up: rows of samples, events and edges as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.log import DEBT_EDGES, FLOW_EVENTS, FLOW_SAMPLES

NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday
SECOND_US: Final = 1_000_000

CULPRIT: Final = "account-17"
BULK: Final = "account-03"  # much in bytes, few messages: looks guilty to who only counts bytes
NODES: Final = ("n1", "n2", "n3")


def at(second: float) -> datetime:
    """The time so many seconds after noon."""
    return NOON + timedelta(seconds=second)


def rows(table: Table, given: Iterable[Mapping[str, Any]], shard: str = "n1") -> pa.Table:
    """Rows of a log; missing values are null, and shard and index are filled in."""
    index = table.names[2]
    found = [
        {"shard": shard, "incarnation": 1, index: number, "node": shard} | dict(each)
        for number, each in enumerate(given)
    ]
    for each in found:
        unknown = set(each) - set(table.names)
        assert not unknown, unknown
    return pa.Table.from_pylist(found, schema=table.arrow())


def queue(second: float, name: str = "orders", **more: Any) -> dict[str, Any]:
    """A queue's sample: it is well and little moves."""
    sample = {
        "at": at(second),
        "elapsed_ms": 1000,
        "kind": "queue",
        "id": "7",
        "name": name,
        "vhost": "/",
        "published": 0,
        "delivered": 0,
        "settled": 0,
        "ready": 0,
        "unacked": 0,
        "ready_octets": 0,
        "consumers": 0,
        "consumers_busy": 0,
        "saturated": False,
        "withheld": 0,
        "pending_octets": 0,
        "pending_octets_max": 1 << 20,
    }
    return sample | more


def stopped(second: float, account: str, name: str, blocked_ms: int, by: str) -> dict[str, Any]:
    """A connection's sample: it is stopped by a queue."""
    return {
        "at": at(second),
        "elapsed_ms": 1000,
        "kind": "connection",
        "id": account,
        "name": f"name of {account}",
        "vhost": "/",
        "user": "guest",
        "account": account,
        "account_kind": "connection",
        "blocked_ms": blocked_ms,
        "blocked_by": by,
        "blocked_vhost": "/",
        "blocked_queue": name,
    }


def node(second: float, name: str = "n1", **more: Any) -> dict[str, Any]:
    """A node's sample, as there is one each second."""
    sample = {
        "at": at(second),
        "elapsed_ms": 1000,
        "kind": "node",
        "id": name,
        "name": name,
        "node": name,
        "published": 0,
        "confirmed": 0,
        "delivered": 0,
        "redelivered": 0,
        "settled": 0,
        "memory_used": 100,
        "memory_limit": 1000,
        "disk_free": 9000,
        "disk_limit": 1000,
        "cpu_ms": 100,
        "loop_lag_ms": 1,
        "connections": 1,
        "channels": 1,
        "queues": 1,
        "left_out": 0,
    }
    return sample | more


def edge(second: float, account: str, name: str = "orders", **more: Any) -> dict[str, Any]:
    """Return the row of an account's arrivals at a queue."""
    brought = {
        "at": at(second),
        "elapsed_ms": 1000,
        "account": account,
        "account_kind": "connection",
        "account_name": f"name of {account}",
        "user": "guest",
        "origin_account": account,
        "exchange": "amq.topic",
        "vhost": "/",
        "queue": name,
        "copies": 0,
        "octets": 0,
        "replica_octets": 0,
    }
    return brought | more


class Story(NamedTuple):
    """A stretch of telemetry with a culprit in it.

    Attributes:
        samples: rows of FLOW_SAMPLES.
        events: rows of FLOW_EVENTS.
        edges: rows of DEBT_EDGES.
        affected: seconds after noon, from and to, in which the culprit does it.
    """

    samples: pa.Table
    events: pa.Table
    edges: pa.Table
    affected: tuple[int, int]


def planted(seconds: int = 240, exchanges: int = 1, seed: int = 5) -> Story:
    """50 accounts that publish alike; one raises its fan-out from 2 to 40 for two minutes.

    Each account sends some 50 messages a second, through as many exchanges as told, to two queues;
    BULK sends few of 30 KB. While the culprit's messages go to 40 queues, those make their other
    publishers wait, and a little the culprit; at all other times somebody waits for some ms.

    Args:
        seconds: of the story, 180 or more; the culprit begins after a minute.
        exchanges: of each account, each with edges of its own.
        seed: of chance.
    """
    chance = np.random.default_rng(seed)
    start, end = 60, 180
    second, account, target = [], [], []
    for each in range(50):
        own = (each, (each + 7) % 50)
        for name in own:
            second.append(np.arange(seconds))
            account.append(np.full(seconds, each))
            target.append(np.full(seconds, name))
    many = [name for name in range(41) if name not in (17, 24)][:38]
    for name in many:
        second.append(np.arange(start, end))
        account.append(np.full(end - start, 17))
        target.append(np.full(end - start, name))
    columns = [np.repeat(np.concatenate(each), exchanges) for each in (second, account, target)]
    edges = _edges(chance, columns, exchanges)
    hit = [*many, 17, 24]
    samples = _heartbeats(seconds) + _waits(chance, seconds, hit, (start, end))
    nothing = rows(FLOW_EVENTS, [])
    return Story(rows(FLOW_SAMPLES, samples), nothing, edges, (start, end))


def _edges(chance: np.random.Generator, columns: list[np.ndarray], exchanges: int) -> pa.Table:
    second, account, target = columns
    count = len(second)
    is_bulk = account == int(BULK[-2:])
    copies = np.maximum(chance.poisson(np.where(is_bulk, 2, 50) / exchanges, count), 0)
    byte_count = copies * np.where(is_bulk, 30_000, 200)
    names = np.array([f"account-{each:02}" for each in range(50)])[account]
    made = {
        "shard": np.array(NODES)[account % 3],
        "incarnation": np.ones(count, np.int64),
        "row_index": np.arange(count),
        "node": np.array(NODES)[account % 3],
        "elapsed_ms": np.full(count, 1000),
        "account": names,
        "origin_account": names,
        "account_name": names,
        "account_kind": np.full(count, "connection"),
        "user": np.full(count, "guest"),
        "vhost": np.full(count, "/"),
        "copies": copies,
        "exchange": np.array([f"x-{each}" for each in range(exchanges)])[
            np.arange(count) % exchanges
        ],
        "queue": np.array([f"q-{each:02}" for each in range(50)])[target],
        "octets": byte_count,
        "replica_octets": byte_count * 2,
        "charged_messages": copies,
        "charged_octets": byte_count,
    }
    micros = int(NOON.timestamp()) * SECOND_US + second * SECOND_US + account * 1000
    schema = DEBT_EDGES.arrow()
    arrays = []
    for field in schema:
        if field.name == "at":
            arrays.append(pa.array(micros, pa.timestamp("us", tz="UTC")))
        elif field.name in made:
            arrays.append(pa.array(made[field.name]).cast(field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _heartbeats(seconds: int) -> list[dict[str, Any]]:
    return [node(second, name) for second in range(seconds) for name in NODES]


def _waits(
    chance: np.random.Generator, seconds: int, hit: list[int], when: tuple[int, int]
) -> list[dict[str, Any]]:
    """Return waiting publishers: those of the queues that are hit, and some by chance."""
    found = []
    for second in range(seconds):
        for name in range(50):
            if name in hit and when[0] <= second < when[1]:
                waited = int(chance.integers(100, 900))
                by = "queue-commands"
            elif chance.random() < 0.02:
                waited, by = int(chance.integers(1, 20)), "credit"
            else:
                continue
            found += [
                stopped(second, f"account-{each:02}", f"q-{name:02}", waited, by)
                for each in (name, (name - 7) % 50)
            ]
    return found


def same_shape(frame: DataFrame, table: Table) -> bool:
    """Return whether a frame has a table's columns, in order, with its types."""
    of = [
        [(field.name, field.dataType) for field in each] for each in (frame.schema, table.spark())
    ]
    return of[0] == of[1]
