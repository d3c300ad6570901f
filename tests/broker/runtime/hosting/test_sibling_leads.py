"""Processes of a node tell each other what they lead, whoever comes, goes or has no room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace_broker.runtime.hosting.sibling_leads import Leading, SiblingLeads
from headrace_raftlog.model.pieces import Pieces

IDS = (1, 65, 129)


@dataclass
class Host:
    """A replica, as far as siblings want to know."""

    leading: bool = True


class Shard:
    """One process, and whom it can send to."""

    def __init__(self, world: dict[int, Shard], number: int) -> None:
        self.hosts: dict[int, Any] = {}
        self.full: set[int] = set()  # ids of those whose outboxes have no room
        self.sent: list[tuple[int, Leading]] = []
        self.leads = SiblingLeads(set(IDS) - {number}, self.hosts, self._send)
        self._world, self._number = world, number

    def _send(self, peer: int, payload: bytes | Pieces) -> bool:
        assert isinstance(payload, bytes)
        if peer in self.full:
            return False
        told = msgspec.msgpack.decode(payload, type=Leading)
        self.sent.append((peer, told))
        self._world[peer].leads.receive(self._number, told)
        return True

    def lead(self, *groups: int) -> None:
        self.hosts |= {group: Host() for group in groups}
        for group in groups:
            self.leads.changed(group)

    def end(self, group: int) -> None:
        self.hosts[group].leading = False
        self.leads.changed(group)

    def knows(self) -> set[int]:
        return {group for group in range(100) if self.leads.is_led(group)}


def play(scenario: Callable[[dict[int, Shard]], Any]) -> None:
    """Run a scenario with three processes; only the first two are up."""

    async def work() -> None:
        world: dict[int, Shard] = {}
        world |= {number: Shard(world, number) for number in IDS}
        for number, peer in ((1, 65), (65, 1)):
            world[number].leads.peer_changed(peer, True)
        await scenario(world)

    asyncio.run(work())


def test_changes_of_one_turn_are_told_together_to_those_that_are_heard() -> None:
    async def scenario(world: dict[int, Shard]) -> None:
        one, other = world[1], world[65]
        one.sent.clear()
        one.hosts[9] = Host(False)
        one.lead(7, 8)
        one.leads.changed(9)
        assert other.knows() == set()
        await asyncio.sleep(0)
        assert one.sent == [(65, Leading([7, 8], [9], False))]
        assert (other.knows(), one.knows()) == ({7, 8}, set())
        one.end(7)
        del one.hosts[8]
        one.leads.changed(8)
        await asyncio.sleep(0)
        assert other.knows() == set()

    play(scenario)


def test_whoever_comes_is_told_everything_and_whoever_goes_is_forgotten() -> None:
    async def scenario(world: dict[int, Shard]) -> None:
        one, third = world[1], world[129]
        one.lead(7, 8)
        await asyncio.sleep(0)
        assert third.knows() == set()
        third.leads.peer_changed(1, True)
        one.leads.peer_changed(129, True)
        assert third.knows() == {7, 8}
        third.leads.peer_changed(1, False)
        assert third.knows() == set()
        third.leads.receive(1, Leading([7], [], False))  # late
        assert third.knows() == set()

    play(scenario)


def test_whoever_was_not_told_of_a_change_is_told_everything_when_there_is_room() -> None:
    async def scenario(world: dict[int, Shard]) -> None:
        one, other = world[1], world[65]
        one.lead(7, 8)
        await asyncio.sleep(0)
        one.full.add(65)
        one.end(7)
        one.lead(9)
        await asyncio.sleep(0)
        one.leads.poll()
        assert other.knows() == {7, 8}
        one.full.clear()
        one.lead(10)  # it is not told of that alone
        await asyncio.sleep(0)
        assert other.knows() == {7, 8}
        one.leads.poll()
        assert other.knows() == {8, 9, 10}
        count = len(one.sent)
        one.leads.poll()
        assert len(one.sent) == count

    play(scenario)


def test_other_nodes_are_told_nothing_and_believed_nothing() -> None:
    async def scenario(world: dict[int, Shard]) -> None:
        one = world[1]
        one.sent.clear()
        one.leads.peer_changed(2, True)
        one.leads.receive(2, Leading([7], [], True))
        one.lead(8)
        await asyncio.sleep(0)
        assert [peer for peer, _ in one.sent] == [65]
        assert one.knows() == set()

    play(scenario)
