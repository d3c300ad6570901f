"""Two drivers of one job: the older one stops."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_client import error as errors
from headrace_client.export import Group, Shard, Shards
from headrace_pipeline.error import FencedError
from headrace_pipeline.jobs.driver_fence import DriverFence


class _Export:
    """Groups as a broker keeps them, at two nodes."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.opened: dict[tuple[str, str], int] = {}
        self.down: set[str] = set()
        self.committed: dict[str, int] = {}

    def shards(self, log: str) -> Shards:
        assert log == "queue_events"
        return Shards(tuple(Shard(name, 7, 0, 40) for name in ("n1", "n2")))

    def open_group(self, log: str, shard: str, group: str, request_id: str) -> Group:
        self._reach(shard)
        if (shard, request_id) not in self.opened:
            self.epochs[shard] = self.epochs.get(shard, 0) + 1
            self.opened[shard, request_id] = self.epochs[shard]
        return Group(shard, group, self.opened[shard, request_id], 0, 0, 7, 0, 40)

    def commit(
        self, log: str, shard: str, group: str, epoch: int, incarnation: int, up_to: int
    ) -> None:
        self._reach(shard)
        if epoch != self.epochs[shard]:
            raise errors.FencedError("a newer epoch")
        self.committed[shard] = up_to

    def _reach(self, shard: str) -> None:
        if shard in self.down:
            raise errors.UnavailableError("down")


class _Client:
    def __init__(self) -> None:
        self.export: Any = _Export()


def test_driver_that_starts_stops_the_one_before() -> None:
    client: Any = _Client()
    older, newer = DriverFence(client, "flow"), DriverFence(client, "flow")
    older.check()
    older.check()
    assert client.export.committed == {"n1": 40, "n2": 40}, "nothing is kept for it"
    newer.check()
    with pytest.raises(FencedError, match="another driver has taken over the job 'flow'"):
        older.check()
    newer.check()


def test_node_that_is_down_says_nothing_and_the_others_do() -> None:
    client: Any = _Client()
    older, newer = DriverFence(client, "flow"), DriverFence(client, "flow")
    older.check()
    client.export.down = {"n1"}
    older.check()
    newer.check()
    with pytest.raises(FencedError):
        older.check()
