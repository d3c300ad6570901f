"""Queues that a node's other processes lead: each tells the others of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import final

from headrace_broker.runtime.contract.payload import Payload, encode
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.session.wire import Send


class Leading(Payload, tag="leading"):
    """From a process of a node to its others: what has changed in what it leads."""

    begun: list[int]  # groups
    ended: list[int]
    whole: bool  # it leads no others than those begun


@final
class SiblingLeads:
    """Knowledge of what is led next door; nothing is next door to a node's only process."""

    def __init__(
        self, siblings: Collection[int], hosts: Mapping[int, QueueHost], send: Send
    ) -> None:
        self._siblings = siblings  # ids of the node's other processes
        self._hosts = hosts  # replicas in this process by queue group
        self._send = send  # carries a payload to a process; those sent arrive while it is heard
        self._led: dict[int, set[int]] = {}  # groups, by sibling that is heard
        self._changed: dict[int, None] = {}  # groups that the others are to be told of
        self._behind: set[int] = set()  # siblings that are to be told everything

    def is_led(self, group: int) -> bool:
        """Return whether another process of the node leads a queue."""
        return any(group in led for led in self._led.values())

    def changed(self, group: int) -> None:
        """Tell the others in the next turn whether a queue is led here."""
        if self._siblings:
            if not self._changed:
                asyncio.get_running_loop().call_soon(self._tell)
            self._changed[group] = None

    def peer_changed(self, peer: int, up: bool) -> None:
        """Note that a process came, which is told everything, or went."""
        self._led.pop(peer, None)
        self._behind.discard(peer)
        if up and peer in self._siblings:
            self._led[peer] = set()
            self._behind.add(peer)
            self.poll()

    def receive(self, peer: int, told: Leading) -> None:
        """Note what a sibling leads."""
        led = self._led.get(peer)
        if led is not None:
            if told.whole:
                led.clear()
            led.update(told.begun)
            led.difference_update(told.ended)

    def poll(self) -> None:
        """Tell those everything that could not be told of a change."""
        if self._behind:
            self._behind = self._untold(self._behind, Leading(self._leading(self._hosts), [], True))

    def _tell(self) -> None:
        changed, self._changed = self._changed, {}
        begun = dict.fromkeys(self._leading(changed))
        ended = [group for group in changed if group not in begun]
        told = self._led.keys() - self._behind
        self._behind |= self._untold(told, Leading(list(begun), ended, False))

    def _untold(self, peers: Collection[int], payload: Leading) -> set[int]:
        data = encode(payload)
        return {peer for peer in peers if not self._send(peer, data)}

    def _leading(self, groups: Collection[int]) -> list[int]:
        hosts = self._hosts
        return [group for group in groups if group in hosts and hosts[group].leading]
