"""Messages of a backup on their way into a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.broker.cli.backup.sample import PLAIN, ROUTE, backup_at, block
from tests.broker.core.conftest import properties

from headrace_broker.cli.backup.chosen_definitions import of_queues
from headrace_broker.cli.backup.manifest import QueueBackup
from headrace_broker.cli.backup.putting_back import Outcome, PuttingBack, for_restoring
from headrace_broker.cli.backup.rate import Rate
from headrace_broker.cli.session.session import CommandError
from headrace_broker.codecs.batch import (
    batch_count,
    check_batch,
    message_body,
    message_properties,
    message_route,
)
from headrace_broker.core.property_reader import PropertyReader, header_int
from headrace_protos.broker.v1 import backup_pb2 as pb
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import (
    Confirmed,
    PublishOpened,
    PublishResponse,
    Refused,
    Window,
)


class Cut(grpc.RpcError):
    """The connection was lost."""


class FakeStream:
    """A broker's side of one stream: takes what fits its window, which moves as it takes."""

    def __init__(self, world: FakeCluster, requests: Iterator[pb.RestoreRequest]) -> None:
        self._world = world
        self._requests = requests
        self._opened = False
        self._taken = self._byte_count = 0
        self._pending: list[PublishResponse] = []

    def __iter__(self) -> FakeStream:
        return self

    def __next__(self) -> PublishResponse:
        world = self._world
        if self._pending:
            return self._pending.pop(0)
        request = next(self._requests)
        if not self._opened:
            self._opened = True
            world.openings.append(request.open)
            return PublishResponse(
                opened=PublishOpened(
                    next_sequence=world.last + 1,
                    batch_messages_max=100,
                    batch_octets_max=1000,
                    window=self._window(),
                )
            )
        return self._take(request.batch)

    def _window(self) -> Window:
        window = self._world.window
        return Window(messages=self._taken + window, octets=self._byte_count + 100 * window)

    def _take(self, batch: pb.RestoreBatch) -> PublishResponse:
        world = self._world
        count = batch_count(batch.batch, 0)
        assert check_batch(batch.batch, 0)
        self._taken += count
        self._byte_count += batch.ByteSize()
        assert count <= world.window
        if world.cut_at and self._taken >= world.cut_at:
            world.cut_at = 0
            raise Cut
        ranges = [Range(first=batch.first_number, last=batch.first_number + count - 1)]
        world.batches.append(count)
        world.last = batch.first_number + count - 1
        if world.shrinks:
            world.window = 1
        self._pending.append(PublishResponse(window=self._window()))
        if world.refuses:
            return PublishResponse(refused=Refused(ranges=ranges))
        world.bodies += [message_body(batch.batch, 0, at) for at in range(count)]
        return PublishResponse(confirmed=Confirmed(ranges=ranges))

    def cancel(self) -> None:
        pass


class FakeCluster:
    def __init__(self, window: int = 8) -> None:
        self.window = window
        self.last = 0
        self.cut_at = 0
        self.refuses = self.shrinks = False
        self.bodies: list[bytes] = []
        self.batches: list[int] = []
        self.openings: list[pb.RestoreOpen] = []

    def restore(self, requests: Iterator[pb.RestoreRequest]) -> FakeStream:
        return FakeStream(self, requests)

    def deadline(self) -> float:
        return 0.0

    def again(self, error: grpc.RpcError, deadline: float) -> None:
        assert isinstance(error, Cut)


class Heard:
    def __init__(self) -> None:
        self.total = 0

    def queue(self, vhost: str, name: str) -> None:
        raise AssertionError("the command says which")

    def add_bytes(self, more: int) -> None:
        self.total += more


@pytest.fixture
def saved(tmp_path) -> tuple[Any, QueueBackup]:
    store, manifest = backup_at(tmp_path)
    return store, manifest.queues[0]


def put_back(cluster: FakeCluster, saved: tuple[Any, QueueBackup]) -> Outcome:
    putting = PuttingBack(saved[0], cluster, Rate(None), Heard())  # type: ignore[arg-type]
    return putting.queue(saved[1], pb.RestoreOpen(vhost="/", queue="q", restore_id="r"))


def test_all_messages_are_sent_in_order_within_the_window(saved) -> None:
    cluster = FakeCluster()
    assert put_back(cluster, saved) == Outcome(4, 0, 0)
    assert cluster.bodies == [b"a", b"bb", b"c", b"d"]
    assert cluster.batches == [2, 1, 1]


def test_window_that_shrinks_below_a_batch_splits_it(saved) -> None:
    cluster = FakeCluster()
    cluster.shrinks = True
    cluster.window = 4  # batches of one message
    assert put_back(cluster, saved) == Outcome(4, 0, 0)
    assert cluster.batches == [1, 1, 1, 1]
    cluster = FakeCluster(window=8)
    cluster.shrinks = True
    cluster.last = 0
    assert put_back(cluster, saved) == Outcome(4, 0, 0)
    assert cluster.bodies == [b"a", b"bb", b"c", b"d"]


def test_stream_that_is_lost_is_opened_again_where_the_queue_is(saved) -> None:
    cluster = FakeCluster()
    cluster.cut_at = 3
    assert put_back(cluster, saved) == Outcome(4, 0, 0)
    assert cluster.bodies == [b"a", b"bb", b"c", b"d"]
    assert [each.restore_id for each in cluster.openings] == ["r", "r"]


@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_what_the_queue_has_had_is_not_sent_again(saved, before) -> None:
    cluster = FakeCluster()
    cluster.last = before
    assert put_back(cluster, saved) == Outcome(4, before, 0)
    assert cluster.bodies == [b"a", b"bb", b"c", b"d"][before:]


def test_what_is_refused_is_counted(saved) -> None:
    cluster = FakeCluster()
    cluster.refuses = True
    assert put_back(cluster, saved) == Outcome(4, 0, 4)


def test_stream_that_ends_before_all_is_answered_is_an_error(saved) -> None:
    class Silent(FakeStream):
        def _take(self, batch: pb.RestoreBatch) -> PublishResponse:
            raise StopIteration

    cluster = FakeCluster()
    cluster.restore = lambda requests: Silent(cluster, requests)  # type: ignore[method-assign]
    with pytest.raises(CommandError, match="4 messages were sent, 0 are confirmed"):
        put_back(cluster, saved)


# Delays


def delay_of(batch: bytes, position: int) -> int:
    block_ = message_properties(batch, 0, position)
    reader = PropertyReader()
    reader.scan_block(block_, 0, len(block_))
    return int(header_int(block_, reader.headers_start, reader.headers_stop, b"x-delay"))


def test_message_that_was_delayed_is_not_delayed_once_more_and_others_for_what_is_left() -> None:
    delayed = properties(headers={b"a": 4, b"x-delay": 5000, b"z": 7})
    for due_ms, left in ((0, -5000), (1_000, -5000), (9_000, 1_000)):
        heads, batch = block(1, b"one", b"", properties=delayed, due_ms=due_ms)
        found = for_restoring(batch, block(1, b"one", b"", due_ms=due_ms).read_heads(), 8_000)
        assert heads
        assert check_batch(found, 0)
        assert batch_count(found, 0) == 2
        for position, body in enumerate((b"one", b"")):
            assert delay_of(found, position) == left
            assert message_body(found, 0, position) == body
            assert message_route(found, 0, position) == ROUTE
            block_ = message_properties(found, 0, position)
            assert b"\x01aI\x00\x00\x00\x04" in block_
            assert block_.endswith(b"\x01zI\x00\x00\x00\x07")


def test_messages_that_were_not_delayed_stay_byte_by_byte() -> None:
    for block_ in (PLAIN, properties(headers={b"x-delay": -5}), properties(headers={b"y": 1})):
        one = block(1, b"x", properties=block_)
        assert for_restoring(one.batch, one.read_heads(), 8_000) == one.batch


# Definitions


def test_definitions_of_queues_are_what_leads_to_them_and_nothing_that_changes_others() -> None:
    def binding(source: str, kind: str, name: str, vhost: str = "/") -> dict[str, str]:
        return {"vhost": vhost, "source": source, "destination_type": kind, "destination": name}

    definitions = {
        "users": [{"name": "guest"}],
        "policies": [{"vhost": "/", "name": "p"}],
        "vhosts": [{"name": "/"}, {"name": "b"}],
        "queues": [{"vhost": "/", "name": "q"}, {"vhost": "b", "name": "q"}],
        "exchanges": [{"vhost": "/", "name": name} for name in ("near", "far", "apart")],
        "bindings": [
            binding("near", "queue", "q"),
            binding("far", "exchange", "near"),
            binding("near", "exchange", "far"),
            binding("apart", "queue", "other"),
            binding("near", "queue", "q", "b"),
        ],
    }
    found = of_queues(definitions, {("/", "q")})
    assert set(found) == {"vhosts", "queues", "exchanges", "bindings"}
    assert found["vhosts"] == [{"name": "/"}]
    assert found["queues"] == [{"vhost": "/", "name": "q"}]
    assert [each["name"] for each in found["exchanges"]] == ["near", "far"]
    assert found["bindings"] == definitions["bindings"][:3]
