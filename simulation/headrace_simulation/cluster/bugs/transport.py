"""Bugs of what carries messages between nodes."""

from __future__ import annotations

from typing import Any, Final

from headrace_raftlog.model.pieces import Assembly
from headrace_raftlog.transport.outbox import Outbox
from headrace_simulation.cluster.bugs.bug import Mutation, put


def _overtaken() -> None:
    def made(original: Any) -> Any:
        def send(self: Any, payload: Any) -> bool:
            count, self._large_payload_count = self._large_payload_count, 0
            done = bool(original(self, payload))
            self._large_payload_count += count
            return done

        return send

    put(Outbox, "send", made)


def _dropped() -> None:
    put(Outbox, "_post_large", lambda _: lambda self, message: None)


def _payloads_dropped() -> None:
    def made(original: Any) -> Any:
        def take(self: Any, frame: Any) -> None:
            original(self, frame)
            frame.application.clear()

        return take

    put(Outbox, "_take_large_payloads", made)


def _fragments_reversed() -> None:
    def made(original: Any) -> Any:
        def add(self: Any, data: Any, start: int = 0, size_max: int = 1 << 62) -> int:
            taken = min(len(data) - start, size_max)
            return int(original(self, bytes(data[start : start + taken])[::-1]))

        return add

    put(Assembly, "add", made)


MUTATIONS: Final = (
    Mutation(
        "large-payloads-overtaken",
        "a short payload goes before a large one that came earlier",
        *("large", 20, _overtaken),
        is_found=False,
    ),
    Mutation(
        "large-appends-dropped",
        "entries that are too large for a frame are not sent",
        *("large", 5, _dropped),
    ),
    Mutation(
        "large-payloads-dropped",
        "payloads that are too large for a frame are not sent",
        *("large", 20, _payloads_dropped),
    ),
    Mutation(
        "fragments-damaged",
        "the bytes of each fragment of large data come in reverse",
        *("large", 5, _fragments_reversed),
    ),
)
