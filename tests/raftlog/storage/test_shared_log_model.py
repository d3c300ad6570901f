"""The shared log against a plain dictionary, with restarts and power failures anywhere."""

from __future__ import annotations

import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.storage.memory_files import MemoryFiles
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.shared_log import SharedLog

GROUPS = st.integers(0, 3)
BLOBS = st.lists(st.binary(max_size=700), min_size=1, max_size=4)
SMALL_BLOBS = st.lists(st.binary(max_size=300), min_size=1, max_size=4)  # never split
OPTIONS = st.builds(
    LogOptions,
    segment_bytes=st.sampled_from([4096, 8192]),
    cache_bytes=st.sampled_from([0, 1000, 1 << 20]),
    seal_seconds=st.just(3600.0),
)
Group = tuple[HardState, list[Entry]]


class LogMachine(RuleBasedStateMachine):
    """Steps that the log and a model take together."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.model: dict[int, Group] = {}
        self.removed: set[int] = set()
        self.term = 1
        self.opened = False

    @initialize(options=OPTIONS)
    def begin(self, options: LogOptions) -> None:
        self.open(options)

    def open(self, options: LogOptions) -> None:
        self.log = SharedLog.open("/log", options, files=self.disk)
        self.opened = True
        self.reported = threading.Event()
        self.log.on_durable = lambda tokens: self.reported.set()
        self.log.on_failed = lambda error: self.reported.set()

    def settle(self) -> None:
        self.reported.clear()
        self.log.flush()
        assert self.reported.wait(30)

    def contents(self) -> dict[int, Group]:
        out = {}
        for group in self.log.groups():
            view = self.log.group(group)
            last = view.last_index()
            entries = view.entries(1, last + 1, 1 << 40) if last else []
            out[group] = (view.hard_state, entries)
        return out

    def change(
        self, model: dict[int, Group], group: int, back: int, blobs: list[bytes], vote: int
    ) -> None:
        """Append to the log and to `model`."""
        _, held = model.get(group, (HardState(0, 0, 0), []))
        first = max(1, len(held) + 1 - back)
        self.term += 1
        entries = [Entry(first + at, self.term, at % 3, blob) for at, blob in enumerate(blobs)]
        state = HardState(self.term, vote, first - 1)
        self.log.append(group, state, entries, True, group)
        model[group] = (state, held[: first - 1] + entries)

    @rule(group=GROUPS, back=st.integers(0, 3), blobs=BLOBS, vote=st.integers(0, 3))
    def append(self, group: int, back: int, blobs: list[bytes], vote: int) -> None:
        if group not in self.removed:
            self.change(self.model, group, back, blobs, vote)
            self.settle()

    @precondition(lambda self: len(self.removed) < 2)
    @rule(group=GROUPS)
    def remove(self, group: int) -> None:
        self.log.remove_group(group, group)
        self.settle()
        self.model.pop(group, None)
        self.removed.add(group)

    @rule(options=OPTIONS)
    def restart(self, options: LogOptions) -> None:
        self.log.close()
        self.open(options)

    @rule(
        steps=st.lists(st.tuples(GROUPS, st.integers(0, 3), SMALL_BLOBS), max_size=4),
        keep=st.lists(st.booleans(), min_size=16, max_size=16),
        names_synced=st.booleans(),
        options=OPTIONS,
    )
    def lose_power_in_a_write(
        self,
        steps: list[tuple[int, int, list[bytes]]],
        keep: list[bool],
        names_synced: bool,
        options: LogOptions,
    ) -> None:
        """Unreported appends are there whole or not at all, in order; the rest always is."""
        legal = [self.model]

        def fail(call: str, path: str) -> None:
            if call == "sync":
                raise OSError(5, "power failed", path)

        self.disk.fault = fail
        for group, back, blobs in steps:
            if group not in self.removed:
                legal.append(dict(legal[-1]))
                self.change(legal[-1], group, back, blobs, 1)
        if len(legal) > 1:
            self.settle()
        self.log.close()
        self.disk = self.disk.after_power_loss(
            lambda path, number, offset: keep[number % 16], names_synced=names_synced
        )
        self.open(options)
        found = self.contents()
        assert found in legal
        self.model = found

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if self.opened:
            assert self.contents() == self.model

    def teardown(self) -> None:
        if self.opened:
            self.log.close()


TestSharedLogAgainstModel = LogMachine.TestCase
TestSharedLogAgainstModel.settings = settings(max_examples=60, stateful_step_count=25)
