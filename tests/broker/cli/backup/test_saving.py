"""Making a backup, and going on with one that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.cli.backup.sample import block

from headrace_broker.cli.backup.cluster import PointLostError, QueueGoneError
from headrace_broker.cli.backup.manifest import QueueBackup, Skipped, folder_of, read_manifest
from headrace_broker.cli.backup.rate import Rate
from headrace_broker.cli.backup.saving import POINTS_MAX, Saving
from headrace_broker.cli.backup.store import DirectoryStore
from headrace_broker.cli.backup.verifying import read_file, verify
from headrace_broker.cli.session.session import CommandError
from headrace_broker.codecs.batch import message_body
from headrace_protos.broker.v1 import backup_pb2 as pb


class KilledError(Exception):
    """The process was killed."""


class FakeCluster:
    """One queue whose messages are chunks; each programmed fault happens once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.points: dict[str, int] = {}  # last id that was given up
        self.opened = 0
        self.faults: dict[int, Exception] = {}  # by the id of the message before which they come
        self.read: list[int] = []

    def open_point(self, vhost: str, queue: str, ttl_ms: int) -> Any:
        if queue == "gone":
            raise QueueGoneError("gone")
        self.opened += 1
        name = f"1-{self.opened}"
        self.points[name] = 0
        return pb.OpenPointResponse(point=name, node="1", messages=self.count, last_id=self.count)

    def keep_point(self, point: str, done_id: int, ttl_ms: int) -> None:
        if point not in self.points:
            raise PointLostError("it is over")
        self.points[point] = done_id

    def close_point(self, point: str) -> None:
        del self.points[point]

    def read_point(self, point: str, after_id: int, chunk_bytes: int) -> Iterator[Any]:
        for number in range(after_id + 1, self.count + 1):
            if number in self.faults:
                raise self.faults.pop(number)
            assert self.points[point] < number
            self.read.append(number)
            heads, batch = block(number, b"%d" % number)
            yield pb.ReadPointResponse(last_id=number, messages=1, heads=heads, batch=batch)


class Heard:
    def __init__(self) -> None:
        self.total = 0

    def queue(self, vhost: str, name: str) -> None:
        raise AssertionError("the command says which")

    def add_bytes(self, more: int) -> None:
        self.total += more


def saving(path: Any, cluster: FakeCluster, file_bytes: int = 400) -> Saving:
    return Saving(
        DirectoryStore(path),
        cluster,  # type: ignore[arg-type]
        Rate(None),
        Heard(),
        60_000,
        file_bytes,
    )


def bodies(path: Any, saved: QueueBackup) -> list[bytes]:
    return [
        message_body(each.batch, 0, 0)
        for file in saved.files
        for each in read_file(DirectoryStore(path), file)
    ]


def wanted(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]


def test_queue_is_written_in_files_of_bounded_size_and_what_is_safe_is_given_up(tmp_path) -> None:
    cluster = FakeCluster(10)
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    assert [file.messages for file in saved.files] == [4, 4, 2]
    assert bodies(tmp_path, saved) == wanted(10)
    assert cluster.points == {}


def test_backup_that_was_cut_off_goes_on_behind_the_last_whole_file(tmp_path) -> None:
    cluster = FakeCluster(10)
    cluster.faults[7] = KilledError()
    with pytest.raises(KilledError):
        saving(tmp_path, cluster).queue("/", "q")
    assert cluster.points == {"1-1": 4}
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    assert (cluster.opened, cluster.read) == (1, [*range(1, 7), *range(5, 11)])
    assert bodies(tmp_path, saved) == wanted(10)


def test_backup_whose_point_is_over_begins_the_queue_anew(tmp_path) -> None:
    cluster = FakeCluster(10)
    cluster.faults[7] = KilledError()
    with pytest.raises(KilledError):
        saving(tmp_path, cluster).queue("/", "q")
    cluster.points.clear()
    cluster.count = 6
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    assert (cluster.opened, saved.point.name) == (2, "1-2")
    assert bodies(tmp_path, saved) == wanted(6)


def test_file_that_was_half_written_is_not_taken_for_a_whole_one(tmp_path) -> None:
    cluster = FakeCluster(10)
    cluster.faults[7] = KilledError()
    with pytest.raises(KilledError):
        saving(tmp_path, cluster).queue("/", "q")
    folder = tmp_path / folder_of("/", "q")
    assert (folder / "00002.hrb.part").exists()
    first = folder / "00001.hrb"
    first.write_bytes(first.read_bytes()[:-1])
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    assert cluster.opened == 2
    assert bodies(tmp_path, saved) == wanted(10)


def test_point_that_is_lost_while_it_is_read_is_replaced_some_times(tmp_path) -> None:
    cluster = FakeCluster(5)
    cluster.faults = {3: PointLostError("the node died"), 4: PointLostError("again")}
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    assert (cluster.opened, bodies(tmp_path, saved)) == (3, wanted(5))

    class Always(FakeCluster):
        def read_point(self, point: str, after_id: int, chunk_bytes: int) -> Iterator[Any]:
            raise PointLostError("the disk is nearly full")

    cluster = Always(5)
    left_out = saving(tmp_path, cluster).queue("/", "other")
    assert isinstance(left_out, Skipped)
    assert cluster.opened == POINTS_MAX
    assert left_out.reason.endswith("the last one because the disk is nearly full")


def test_queue_that_is_complete_is_not_read_again_and_one_that_is_gone_is_left_out(
    tmp_path,
) -> None:
    cluster = FakeCluster(3)
    first = saving(tmp_path, cluster).queue("/", "q")
    assert saving(tmp_path, cluster).queue("/", "q") == first
    assert cluster.opened == 1
    gone = saving(tmp_path, cluster).queue("/", "gone")
    assert gone == Skipped(vhost="/", name="gone", reason="it was deleted meanwhile")


def test_messages_that_lack_are_not_taken_for_all(tmp_path) -> None:
    cluster = FakeCluster(5)
    opened = cluster.open_point

    def more(vhost: str, queue: str, ttl_ms: int) -> Any:
        response = opened(vhost, queue, ttl_ms)
        response.messages += 1
        return response

    cluster.open_point = more  # type: ignore[method-assign]
    left_out = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(left_out, Skipped)
    assert "5 messages were read of 6" in left_out.reason


def test_backup_is_one_once_it_is_ended_and_is_begun_once(tmp_path) -> None:
    cluster = FakeCluster(3)
    asked: list[int] = []

    def definitions() -> dict[str, Any]:
        asked.append(1)
        return {"queues": []}

    begun = saving(tmp_path, cluster).begin("local", ["a"], definitions)
    again = saving(tmp_path, cluster).begin("local", ["a"], definitions)
    assert again == begun
    assert asked == [1]
    for name, selection in (("local", ["b"]), ("other", ["a"])):
        with pytest.raises(CommandError, match="the beginning of a backup of cluster 'local'"):
            saving(tmp_path, cluster).begin(name, selection, definitions)
    with pytest.raises(FileNotFoundError):
        read_manifest(DirectoryStore(tmp_path))
    saved = saving(tmp_path, cluster).queue("/", "q")
    assert isinstance(saved, QueueBackup)
    manifest = saving(tmp_path, cluster).end(begun, [saved], [])
    assert read_manifest(DirectoryStore(tmp_path)) == manifest
    assert verify(DirectoryStore(tmp_path), manifest, lambda byte_count: None) == []
    with pytest.raises(CommandError, match="holds a complete backup"):
        saving(tmp_path, cluster).begin("local", ["a"], definitions)
