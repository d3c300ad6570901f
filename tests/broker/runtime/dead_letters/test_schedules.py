"""A dead letter is forgotten only when it has arrived, in any schedule."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.core.queue.messages.effect import REASON_EXPIRED, Acquired
from headrace_broker.runtime.dead_letter import at_least_once
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublisher

TARGETS = ("dead", "copy")


class Machine:
    """Replicas of a queue; the log commits a FORGET when the test says so."""

    def __init__(self, queue, make_letter):
        self.queue = queue
        self.arguments = {"dead-letter-exchange": "dlx"}
        self.kept_letters: dict[int, Acquired] = {}
        self.leader: Any = None
        self.busy = False
        self.log: list[list[int]] = []
        self.forgotten: set[int] = set()
        self._make_letter = make_letter

    def die(self, count):
        """Let more messages die."""
        for _ in range(count):
            number = len(self.kept_letters) + len(self.forgotten) + 1
            self.kept_letters[number] = Acquired(number, number // 3, 0, 4, 0, 0)
            if number % 2:
                self.leader.service.note_causes(self.queue, [number], [self.leader.cause])
        self.leader.service.keep(self)

    def kept(self, limit):
        return [(message, REASON_EXPIRED) for message in list(self.kept_letters.values())[:limit]]

    def dead_letters(self, messages, reason, done):
        return [self._make_letter(int(m.message_id), b"%d" % m.message_id) for m in messages]

    def forget(self, ids):
        if not self.busy:
            self.log.append(ids)
        return not self.busy

    def commit(self):
        log, self.log = self.log, []
        for ids in log:
            for number in ids:
                if self.kept_letters.pop(number, None) is not None:
                    self.forgotten.add(number)
            self.leader.service.forgotten(self.queue.group, ids)


class Leader:
    """A node that leads the queue, with sessions of its own."""

    def __init__(self, network, machine):
        self.sessions: list[Any] = []
        self.service = network.service(DeadLetterPublisher(self._open(network), network.charges))
        self.account, self.cause = network.account("client")
        self.service.keep(machine)

    def _open(self, network):
        def open_session(queue, listener, causes):
            session = network._open(queue, listener, causes)
            self.sessions.append(session)
            return session

        return open_session


class Run:
    """One schedule."""

    def __init__(self, network, make_letter):
        network.queue("work")
        network.exchange("dlx")
        for name in TARGETS:
            network.queue(name)
            network.bind("dlx", name)
        self.network = network
        self.machine = Machine(network.catalog.queue("/", "work"), make_letter)
        self.arrived: dict[str, set[int]] = {name: set() for name in TARGETS}
        self.elect()

    def elect(self):
        """Elect another node; the former one's pending requests get no answer."""
        self.machine.log.clear()
        if self.machine.leader is not None:
            self.machine.leader.service.stop()
            assert (self.network.charges.count, self.machine.leader.account.messages) == (0, 0)
            self.network.ledger.close(self.machine.leader.account)
        self.machine.leader = Leader(self.network, self.machine)

    def open(self, target):
        found = self.machine.leader.sessions
        return [each for each in found if each.queue.name == TARGETS[target] and not each.closed]

    def confirm(self, target, count):
        for session in self.open(target):
            bodies = session.bodies[:count]
            self.arrived[session.queue.name].update(int(body) for body in bodies)
            session.confirm(count)

    def refuse(self, target):
        for session in self.open(target):
            session.refuse()

    async def step(self, kind, target, count):
        if kind == "die":
            self.machine.die(count)
        elif kind == "confirm":
            self.confirm(target, count)
        elif kind == "refuse":
            self.refuse(target)
        elif kind == "elect":
            self.elect()
        elif kind == "busy":
            self.machine.busy = count % 2 == 0
        else:
            self.machine.commit()
        for _ in range(count):
            await asyncio.sleep(0)
        self.check()

    def check(self):
        for name in TARGETS:
            assert self.machine.forgotten <= self.arrived[name]

    async def finish(self):
        self.machine.busy = False
        for _ in range(10_000):
            if not self.machine.kept_letters:
                return
            for target in range(len(TARGETS)):
                self.confirm(target, None)
            self.machine.commit()
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.machine.kept_letters)} letters never arrive")


STEPS = st.tuples(
    st.sampled_from(["die", "confirm", "confirm", "refuse", "elect", "busy", "commit", "commit"]),
    st.integers(0, len(TARGETS) - 1),
    st.integers(1, 5),
)


@settings(deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_no_letter_is_forgotten_before_it_arrived_and_all_arrive(steps, make_network, make_letter):
    async def work():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(at_least_once, "RETRY_SECONDS_MIN", 0.0)
            patch.setattr(at_least_once, "RETRY_SECONDS_MAX", 0.0)
            patch.setattr(at_least_once, "TIMER_STEP_MS", 0)
            run = Run(make_network(), make_letter)
            for step in steps:
                await run.step(*step)
            await run.finish()
            run.check()
            service = run.machine.leader.service
            for _ in range(20):
                await asyncio.sleep(0)
            assert (service.held_bytes, service.queue_count) == (0, 0)
            assert run.network.charges.count == 0
            service.stop()

    asyncio.run(work())
