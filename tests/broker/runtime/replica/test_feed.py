"""The leader's side of one consumer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.codecs.batch import encode_batch, message_body
from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import encode_enqueue, stamp_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.runtime.contract.lane_port import SessionEnd
from headrace_broker.runtime.contract.queue_log import TAKEN, QueueLog
from headrace_broker.runtime.replica.feed import Feed


class Entries(QueueLog):
    """Entries by index, and how often each was read."""

    def __init__(self):
        self.entries = {}
        self.reads = []
        self.slow = False
        self.waiting = {}

    def entry_at_hand(self, index, done):
        if self.slow:
            self.waiting[index] = done
            return None
        assert index not in self.waiting
        self.reads.append(index)
        return self.entries[index]

    def give_up(self, done):
        self.waiting = {index: each for index, each in self.waiting.items() if each != done}

    def read(self, index):
        """Let an entry come from the disk."""
        done = self.waiting.pop(index)
        slow, self.slow = self.slow, False
        done()
        self.slow = slow

    def propose(self, data, urgent):
        self.entries[len(self.entries) + 1] = data
        return TAKEN

    def forget(self, index):
        del self.entries[index]

    def leader(self):
        return 1


class Sink(SessionEnd):
    """Takes runs; `bodies` by delivery number."""

    def __init__(self):
        self.runs = []
        self.bodies = {}

    def run(self, run):
        self.runs.append((run.first, len(run.positions)))
        for offset, position in enumerate(run.positions):
            assert run.first + offset not in self.bodies
            self.bodies[run.first + offset] = message_body(run.blob, run.base, position)

    def rejected(self, first, last, fenced):
        raise AssertionError("a feed only delivers")

    def enqueued(self, first, last):
        raise AssertionError("a feed only delivers")

    def controlled(self, number, status, count):
        raise AssertionError("a feed only delivers")

    def got(self, number, run, ready_left):
        raise AssertionError("a feed only delivers")

    def gap(self, lane, expected):
        raise AssertionError("a feed only delivers")

    def refused(self, leader, busy, unknown):
        raise AssertionError("a feed only delivers")

    def detached(self, consumer):
        raise AssertionError("a feed only delivers")

    def timed_out(self, consumer):
        raise AssertionError("a feed only delivers")

    def deferred(self, rows):
        raise AssertionError("a feed only delivers")

    def completed(self, rows):
        raise AssertionError("a feed only delivers")

    def still_deferred(self, last, rows):
        raise AssertionError("a feed only delivers")


class Line:
    """A feed with messages to acquire."""

    def __init__(self, publishes, window):
        self.source = Entries()
        self.sink = Sink()
        self.machine = QueueMachine()
        self.feed = Feed(1, window, self.source, self.machine)
        self.publishes = publishes
        self.next = 1

    def entry(self, *bodies):
        """Store an entry and return its messages as acquired."""
        index = len(self.source.entries) + 1
        batch = encode_batch(self.publishes(*bodies))
        self.source.entries[index] = stamp_command(0, encode_enqueue(1, 1, batch))
        return [
            Acquired(index * 100 + at, index, at, len(body), 0, 0) for at, body in enumerate(bodies)
        ]

    def deliver(self, acquired):
        self.feed.deliver(self.next, acquired, self.sink)
        self.next += len(acquired)


@pytest.fixture(scope="session")
def make_line(publishes):
    """Make a feed with a window."""
    return lambda window: Line(publishes, window)


def test_deliveries_of_one_entry_are_one_run_and_one_read(make_line):
    line = make_line(100)
    line.deliver(line.entry(b"a", b"b", b"c"))
    assert line.sink.runs == [(1, 3)]
    assert line.source.reads == [1]
    assert line.feed.window == 97


def test_runs_wait_in_order_for_entries_that_are_read(make_line):
    line = make_line(100)
    line.source.slow = True
    line.deliver(line.entry(b"a", b"b"))
    line.deliver(line.entry(b"c"))
    line.feed.open(50, line.sink)
    assert (line.sink.runs, list(line.source.waiting)) == ([], [1])
    line.source.read(1)
    assert line.sink.runs == [(1, 2), (3, 1)]
    assert line.feed.waiting_count == 0


def test_feed_that_has_ended_sends_nothing_that_was_read_for_it(make_line):
    line = make_line(100)
    line.source.slow = True
    line.deliver(line.entry(b"a"))
    read = line.source.waiting[1]
    line.feed.end()
    assert line.source.waiting == {}
    read()
    assert line.sink.runs == []


def test_window_that_closed_while_an_entry_was_read_holds(make_line):
    line = make_line(1)
    line.source.slow = True
    line.deliver(line.entry(b"a"))
    line.feed.open(-1, line.sink)
    line.source.read(1)
    assert line.sink.runs == []
    line.source.slow = False
    line.feed.open(1, line.sink)
    assert line.sink.runs == [(1, 1)]


def test_each_entry_is_a_run(make_line):
    line = make_line(100)
    line.deliver(line.entry(b"a", b"b") + line.entry(b"c"))
    assert line.sink.runs == [(1, 2), (3, 1)]


def test_run_is_cut_where_the_window_ends_and_goes_on_when_it_opens(make_line):
    line = make_line(10)
    line.deliver(line.entry(b"1234", b"5678", b"9abc", b"defg"))
    line.deliver(line.entry(b"last"))
    assert line.sink.runs == [(1, 3)]  # overdrawn by the message that did not fit
    assert line.feed.window == -2
    assert line.feed.waiting_count == 2
    line.feed.open(2, line.sink)
    assert line.sink.runs == [(1, 3)]
    line.feed.open(1, line.sink)
    assert line.sink.runs == [(1, 3), (4, 1)]
    line.feed.open(100, line.sink)
    assert line.sink.bodies[5] == b"last"


def test_message_larger_than_the_window_passes_alone(make_line):
    line = make_line(10)
    line.deliver(line.entry(bytes(50), b"next"))
    assert line.sink.runs == [(1, 1)]
    line.feed.open(50, line.sink)
    assert line.sink.runs == [(1, 1), (2, 1)]


def test_empty_bodies_take_no_room(make_line):
    line = make_line(1)
    line.deliver(line.entry(b"", b"", b""))
    assert line.sink.runs == [(1, 3)]


def test_feed_without_room_reads_nothing(make_line):
    line = make_line(0)
    line.deliver(line.entry(b"a"))
    assert line.source.reads == []
    line.feed.open(1, line.sink)
    assert line.sink.runs == [(1, 1)]


@given(
    sizes=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6), max_size=8),
    window=st.integers(-5, 30),
    grants=st.lists(st.integers(1, 20), max_size=20),
)
def test_everything_comes_in_order_whatever_the_window(make_line, sizes, window, grants):
    line = make_line(window)
    expected = []
    for number, entry in enumerate(sizes):
        bodies = [bytes([65 + number]) * size for size in entry]
        expected += bodies
        line.deliver(line.entry(*bodies))
        if grants:
            line.feed.open(grants.pop(), line.sink)
    got = [line.sink.bodies[number] for number in range(1, len(line.sink.bodies) + 1)]
    assert got == expected[: len(got)]
    line.feed.open(10_000, line.sink)
    got = [line.sink.bodies[number] for number in range(1, len(line.sink.bodies) + 1)]
    assert got == expected
    assert line.feed.waiting_count == 0


def test_entry_that_was_settled_while_it_waited_is_passed_over(make_line):
    line = make_line(0)
    line.deliver(line.entry(b"a"))
    line.deliver(line.entry(b"b"))
    line.source.forget(1)  # its gateway had it from an earlier leader, and has settled it
    line.feed.open(10, line.sink)
    assert line.sink.runs == [(2, 1)]


def test_live_entry_that_is_gone_is_a_bug(make_line):
    line = make_line(0)
    line.deliver(line.entry(b"a"))
    line.machine.apply(1, line.source.entries[1])
    attach = command.encode_attach(1 << 60, 1, 1, 5, False, b"")
    line.machine.apply(2, command.stamp_command(0, attach))
    assert line.machine.holds_out(1)
    line.source.forget(1)
    with pytest.raises(AssertionError, match="a live message is gone"):
        line.feed.open(10, line.sink)
