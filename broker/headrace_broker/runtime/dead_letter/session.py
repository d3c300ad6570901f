"""Causes that a session of dead letters sends to the leader beside its commands."""

from __future__ import annotations

from typing import final

from librt.strings import read_i64_be
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.batch import batch_count
from headrace_broker.core.queue.command.command import (
    ENQUEUE,
    ENQUEUE_BATCH_OFFSET,
    ENQUEUE_SEQ_OFFSET,
    STAMP_BYTES,
)
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd, SessionTransport


@final
class DeadLetterSession(SessionTransport):
    """The way to the leaders, for one session."""

    def __init__(self, reach: SessionTransport, causes: CauseRuns) -> None:
        self._reach = reach  # for all sessions
        self._causes = causes  # of the session's messages

    @override
    def host(self, target: int, group: int) -> HostEnd | None:
        host = self._reach.host(target, group)
        return None if host is None else _LetterHost(host, self._causes)

    @override
    def session(self, session: int) -> SessionEnd | None:
        return self._reach.session(session)


@final
class _LetterHost(HostEnd):
    def __init__(self, host: HostEnd, causes: CauseRuns) -> None:
        self._host = host
        self._causes = causes

    @override
    def command(self, session: int, data: bytes) -> None:
        if data[0] != ENQUEUE:
            self._host.command(session, data)
            return
        first = read_i64_be(data, ENQUEUE_SEQ_OFFSET - STAMP_BYTES)
        count = batch_count(data, ENQUEUE_BATCH_OFFSET - STAMP_BYTES)
        self._host.caused(session, data, self._causes.of(first, count))

    @override
    def caused(self, session: int, data: bytes, causes: list[int]) -> None:
        self._host.caused(session, data, causes)

    @override
    def large(self, session: int, command: LargeCommand, causes: list[int]) -> None:
        first = read_i64_be(command.head, ENQUEUE_SEQ_OFFSET - STAMP_BYTES)
        count = batch_count(command.head, ENQUEUE_BATCH_OFFSET - STAMP_BYTES)
        self._host.large(session, command, self._causes.of(first, count))

    @override
    def is_far(self) -> bool:
        return self._host.is_far()

    @override
    def resync(
        self,
        session: int,
        consumer: i64,
        number: i64,
        window: i64,
        attached: bool,
        filter_table: bytes,
    ) -> bool:
        return self._host.resync(session, consumer, number, window, attached, filter_table)

    @override
    def ask_deferred(self, session: int) -> bool:
        return self._host.ask_deferred(session)

    @override
    def window(self, session: int, consumer: i64, byte_count: i64) -> bool:
        return self._host.window(session, consumer, byte_count)
