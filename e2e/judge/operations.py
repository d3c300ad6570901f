"""The exported history: a line of JSON an event, as Jepsen records them.

Fields of all lines: `process`, `type` (invoke, ok, fail or info: the outcome is not known), `f`
(enqueue, dequeue, write or read), `value`. Messages also have `queue`; enqueues `channel`, which
the process numbered, and `number`, the place on that channel; dequeues `redelivered`. Writes and
reads have `key`, the name, and `time`, nanoseconds.
The last lines, of the process `end`, say what was found when the run was over: `f` is `dead-letter`
(where a queue's dead letters go) or `delayed` (how many messages a queue still holds).

Dequeues of one process are in order of arrival. Lines of messages have no time: when they happened
is not part of what is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from e2e.chaos.history import History, Operation, Outcome

NANOSECONDS: Final = 1_000_000_000
TYPES: Final = {Outcome.CONFIRMED: "ok", Outcome.REJECTED: "fail", Outcome.UNKNOWN: "info"}


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    process: str
    type: str
    f: str
    value: Any
    queue: str = ""
    channel: int = -1
    number: int = -1
    redelivered: bool = False
    key: str = ""
    time: int = -1


def export(history: History) -> list[Event]:
    """Return a history's events; what routing reads say is left out, for it may be a bit old."""
    found = [*_messages(history), *_names(history.operations)]
    found += [
        Event("end", "info", "dead-letter", target, queue=queue)
        for queue, target in history.dead_letters.items()
    ]
    found += [
        Event("end", "info", "delayed", count, queue=queue)
        for queue, count in history.delayed.items()
    ]
    return found


def _messages(history: History) -> Iterator[Event]:
    for each in history.publishes:
        for kind in ("invoke", TYPES[each.outcome]):
            yield Event(
                *(each.publisher, kind, "enqueue", each.id, each.queue),
                *(each.channel, each.number),
            )
    for got in history.deliveries:
        redelivered = got.redelivered
        yield Event(got.consumer, "ok", "dequeue", got.id, got.queue, redelivered=redelivered)


def _names(operations: list[Operation]) -> list[Event]:
    """Return events ordered by time; each operation is a process of its own."""
    events: list[Event] = []
    for number, each in enumerate(operations):
        if each.routing:
            continue
        process = f"{each.node}-{number}"
        f = "write" if each.write else "read"
        begun = int(each.invoked * NANOSECONDS)
        events.append(Event(process, "invoke", f, each.value, key=each.name, time=begun))
        if each.completed is not None:
            ended = int(each.completed * NANOSECONDS)
            events.append(Event(process, "ok", f, each.value, key=each.name, time=ended))
    return sorted(events, key=lambda event: event.time)


def save(events: list[Event], path: Path) -> None:
    """Write them as lines of JSON."""
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in events))


def load(path: Path) -> list[Event]:
    """Read what `save` wrote, or another program did."""
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Event) for line in lines if line]
