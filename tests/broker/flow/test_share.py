"""Large publishes of many connections: all get in, and never more than the bound at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.share import FREE_BYTES, READ_BYTES_MIN, Reader
from headrace_broker.model.limits import LARGE_STALLED_LOOKS

BOUND = 1 << 20
LARGEST = BOUND // 8
READ_MAX = 16 << 10


def limits_of(bound: int = BOUND) -> FlowLimits:
    limits = FlowLimits()
    limits.node_buffer_bytes = bound
    limits.connection_buffer_bytes = bound // 16
    return limits


class Client(Reader):
    """Publishes contents one after the other on each of its channels, as fast as it is read.

    Args:
        channels: for each the bytes of the contents that it sends.
        keeps: publishes that came as a whole are held until they are released.
    """

    def __init__(self, intake: Intake, channels: list[list[int]], keeps: bool = False) -> None:
        self.reading = True
        self.share = intake.open(self)
        self.keeps = keeps
        self.gone = False
        self._intake = intake
        self._channels = [list(contents) for contents in channels]
        self._under_way: dict[int, tuple[int, int]] = {}  # by channel: bytes there, bytes to come

    def may_read(self, reading: bool) -> None:
        assert reading != self.reading
        self.reading = reading

    def stalled(self) -> None:
        self.share.close()
        self.gone = True

    @property
    def done(self) -> bool:
        return not self._under_way and not any(self._channels)

    def send(self, channel: int) -> None:
        """Send as much as is read at once; contents begin where there is none under way."""
        if not self.reading or self.done:
            return
        room = int(self.share.read_bytes(READ_MAX))
        assert READ_BYTES_MIN <= room <= READ_MAX
        while room > 0 and not self.done:
            channel %= len(self._channels)
            if channel not in self._under_way:
                if not self._channels[channel]:
                    channel += 1
                    continue
                self._under_way[channel] = (0, self._channels[channel].pop(0))
            there, missing = self._under_way[channel]
            part = min(room, missing)
            room -= part
            if part < missing:
                self._under_way[channel] = (there + part, missing - part)
                break
            del self._under_way[channel]
            if self.keeps:
                self.share.hold(there + missing)
        partial = sum(there for there, _ in self._under_way.values())
        self.share.parsed(partial, sum(missing for _, missing in self._under_way.values()))

    def pass_on(self) -> None:
        self.share.release(self.share.held)


def total(intake: Intake) -> int:
    return int(intake.shares.held + intake.shares.partial)


def run(intake: Intake, clients: list[Client], most: int) -> int:
    """Let all go on to their end; return the largest sum that was ever held."""
    peak = 0
    rounds = 0
    while not all(client.done for client in clients):
        for number, client in enumerate(clients):
            if not client.reading:
                continue
            client.send(number + rounds)
            peak = max(peak, total(intake))
            assert total(intake) <= most
        for client in clients[rounds % 3 :: 3]:
            client.pass_on()
        if intake.shares.due:
            intake.shares.poll()
        rounds += 1
        assert rounds < 100_000, "nobody goes on"
    return peak


def test_large_publishes_of_two_thousand_connections_come_in_within_the_bound() -> None:
    bound = 128 << 20
    intake = Intake(limits_of(bound))
    largest = Client(intake, [[16 << 20]])
    clients = [largest, *(Client(intake, [[256 << 10]]) for _ in range(1999))]
    peak = run(intake, clients, 3 * bound // 4 + (16 << 20))
    assert peak > bound // 2  # it is used, too
    assert total(intake) == 0


def test_one_large_publish_alone_is_never_held_up() -> None:
    intake = Intake(limits_of())
    client = Client(intake, [[LARGEST] * 20])
    while not client.done:
        assert client.reading
        client.send(0)


def test_who_is_larger_than_all_room_still_gets_in_alone() -> None:
    intake = Intake(limits_of())
    clients = [Client(intake, [[BOUND]]) for _ in range(3)]
    run(intake, clients, BOUND + BOUND // 4 + LARGEST)


def test_huge_ones_come_in_one_at_a_time_and_keep_no_large_one_waiting() -> None:
    intake = Intake(limits_of())
    huge = [Client(intake, [[BOUND]]) for _ in range(2)]
    for _ in range(20):
        for client in huge:
            client.send(0)
    assert [client.reading for client in huge] == [True, False]
    large = [Client(intake, [[LARGEST] * 3]) for _ in range(8)]
    run(intake, large, BOUND + 2 * BOUND // 4 + BOUND // 2 + LARGEST)
    assert [client.reading for client in huge] == [True, False], "the first has not moved"
    run(intake, huge, BOUND + BOUND // 4 + LARGEST)


def test_two_that_begin_more_while_they_are_within_do_not_block_each_other() -> None:
    intake = Intake(limits_of())
    contents = [[LARGEST]] * 4
    clients = [Client(intake, contents) for _ in range(6)]
    run(intake, clients, 4 * LARGEST + BOUND)


def test_first_of_those_that_begin_more_goes_on_beside_a_huge_one() -> None:
    intake = Intake(limits_of())
    huge, first, second = [Client(intake, [[BOUND]]) for _ in range(3)]
    there = BOUND // 12
    huge.share.parsed(there, BOUND)
    for missing in (BOUND // 8, BOUND // 4):
        first.share.parsed(there, missing)
        second.share.parsed(there, missing)
    assert [each.reading for each in (huge, first, second)] == [True, True, False]


def test_one_that_goes_in_the_middle_makes_room() -> None:
    intake = Intake(limits_of())
    clients = [Client(intake, [[BOUND // 2]]) for _ in range(2)]
    for _ in range(20):
        for client in clients:
            client.send(0)
    first, second = clients
    assert (first.reading, second.reading) == (True, False)
    first.share.close()
    intake.shares.poll()
    assert second.reading
    assert intake.figures().large == 1


def test_one_that_stands_still_while_others_wait_has_to_go() -> None:
    intake = Intake(limits_of())
    still, moving = (Client(intake, [[BOUND // 2]]) for _ in range(2))
    for _ in range(10):
        still.send(0)
    for _ in range(2 * LARGE_STALLED_LOOKS):
        intake.shares.tick()
    assert [still.gone] == [False]  # nobody waits
    for _ in range(10):
        moving.send(0)
    assert not moving.reading
    for _ in range(LARGE_STALLED_LOOKS):
        intake.shares.tick()
    intake.shares.poll()
    assert [still.gone, moving.gone] == [True, False]
    run(intake, [moving], BOUND)


def test_one_that_is_slow_may_stay() -> None:
    intake = Intake(limits_of())
    slow, other = (Client(intake, [[BOUND // 2]]) for _ in range(2))
    for client in (slow, other):
        for _ in range(10):
            client.send(0)
    while not slow.done:
        for _ in range(LARGE_STALLED_LOOKS - 1):
            intake.shares.tick()
        slow.send(0)
    assert not slow.gone


def test_a_connection_that_publishes_nothing_large_is_read_whatever_the_others_do() -> None:
    intake = Intake(limits_of())
    clients = [Client(intake, [[BOUND // 2]]) for _ in range(50)]
    for _ in range(200):
        for client in clients:
            client.send(0)
    small = Client(intake, [[100] * 50])
    while not small.done:
        small.send(0)
        assert small.reading


fleets = st.lists(
    st.tuples(
        st.lists(st.lists(st.integers(1, LARGEST), max_size=3), min_size=1, max_size=3),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(fleets, st.lists(st.integers(0, 11), max_size=6))
def test_whoever_sends_what_all_get_in_within_the_bound(
    fleet: list[tuple[list[list[int]], bool]], leaving: list[int]
) -> None:
    intake = Intake(limits_of())
    clients = [Client(intake, channels, keeps) for channels, keeps in fleet]
    for _ in range(5):
        for client in clients:
            client.send(0)
    for at in leaving:
        if at < len(clients):
            clients.pop(at).share.close()
    most = BOUND // 4 + BOUND // 2 + 3 * LARGEST + len(clients) * (READ_MAX + FREE_BYTES)
    run(intake, clients, most + 3 * LARGEST)
    for client in clients:
        client.share.close()
    figures = intake.figures()
    assert (figures.held, figures.partial, figures.large, figures.unread) == (0, 0, 0, 0)
