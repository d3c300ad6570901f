"""Events as a module of TLA+: what the specifications in spec/ call Data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
from e2e.judge.operations import Event

OUTCOMES: Final = {"ok": "confirmed", "fail": "rejected", "info": "unknown"}


class _Queue(msgspec.Struct):
    kind: str = "work"
    publishes: list[Event] = []
    deliveries: list[Event] = []
    counted: int = 0


def messages_module(events: Sequence[Event]) -> str:
    """Return the module for Messages.tla."""
    targets = {each.queue: str(each.value) for each in events if each.f == "dead-letter"}
    queues: dict[str, _Queue] = {}
    for source, target in targets.items():
        queues[target] = _Queue("letters")
        assert source not in queues
    for each in events:
        if each.f in ("enqueue", "dequeue", "delayed"):
            queue = queues.setdefault(targets.get(each.queue, each.queue), _Queue())
            if each.f == "enqueue":
                if each.type != "invoke":
                    queue.publishes.append(each)
            elif each.f == "dequeue":
                queue.deliveries.append(each)
            else:
                queue.kind, queue.counted = "delayed", each.value
    parts = [_queue_value(queue) for _, queue in sorted(queues.items())]
    return _module(f"Queues == {_sequence(parts)}")


def _queue_value(queue: _Queue) -> str:
    consumers = _numbered(each.process for each in queue.deliveries)
    channels = _numbered((each.process, each.channel) for each in queue.publishes)
    numbers = {each.value: number for number, each in enumerate(queue.publishes, 1)}
    published = [
        (channels[each.process, each.channel], each.number, OUTCOMES[each.type])
        for each in queue.publishes
    ]
    delivered = [
        (numbers.get(each.value, 0), consumers[each.process], each.redelivered)
        for each in queue.deliveries
    ]
    return (
        f'[kind |-> "{queue.kind}", counted |-> {queue.counted},\n'
        f"publishes |-> {_sequence(map(_value, published))},\n"
        f"deliveries |-> {_sequence(map(_value, delivered))}]"
    )


def _numbered(values: Iterable[Hashable]) -> dict[Hashable, int]:
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def names_module(events: Sequence[Event]) -> str:
    """Return the module for Names.tla."""
    timed = [each for each in events if each.f in ("write", "read")]
    ranks = {time: rank for rank, time in enumerate(sorted({e.time for e in timed}), 1)}
    ended = {each.process: ranks[each.time] for each in timed if each.type == "ok"}
    histories: dict[str, list[tuple[bool, bool, int, int]]] = {}
    for each in sorted(timed, key=lambda event: event.time):
        if each.type == "invoke":
            completed = ended.get(each.process, 0)
            operation = (each.f == "write", bool(each.value), ranks[each.time], completed)
            histories.setdefault(each.key, []).append(operation)
    parts = [_sequence(map(_value, ops)) for _, ops in sorted(histories.items())]
    return _module(f"Histories == {_sequence(parts)}")


def module(name: str, events: Sequence[tuple[Any, ...]]) -> str:
    """Return a module that defines a sequence of tuples; lists are sequences, sets are sets."""
    return _module(f"{name} == {_sequence(map(_value, events))}")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, set):
        return f"{{{', '.join(map(_value, sorted(value)))}}}"
    if isinstance(value, tuple | list):
        return _sequence(map(_value, value))
    return str(value)


def _sequence(parts: Iterable[str]) -> str:
    return f"<<{', '.join(parts)}>>"


def _module(text: str) -> str:
    return f"---- MODULE Data ----\n{text}\n====\n"
