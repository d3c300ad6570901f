"""Jobs that move messages of a queue elsewhere by lease, each message exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from headrace_broker.codecs.batch import batch_count, message_body
from headrace_broker.core.queue.state.lease_effect import (
    LEASE_FENCED,
    LEASE_GONE,
    LEASE_OK,
    LEASE_SETTLED,
    LEASE_STATUS_NAMES,
    LeaseAnswer,
)
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError, QueueGoneError
from headrace_simulation.cluster.clients import RETRY_S, Site
from headrace_simulation.cluster.history import History

if TYPE_CHECKING:
    from headrace_broker.runtime.lease.leasing import LeaseClient

GROUP: Final = b"job"
BYTES_MAX: Final = 1 << 20  # of the bodies of a lease
LONG_MS: Final = 600_000  # no run lasts so long
SHORT_MS: Final = 1_500
FAILURES: Final = (LeaderUnavailableError, QueueGoneError, AmqpError)


@final
class Sink:
    """Leases as they were written elsewhere, by number; outlives every process."""

    def __init__(self, history: History, queue: str, *, expires: bool) -> None:
        self.history = history
        self.queue = queue
        self.expires = expires  # leases do, within a run
        self.ttl_ms = SHORT_MS if expires else LONG_MS
        self.written: dict[int, list[bytes]] = {}  # and not known to be settled
        self.asked: set[int] = set()  # leases of these that were to be settled
        self.last = 0  # lease that is known to be settled
        self.epoch = 0  # the newest of which a job was told

    def write(self, number: int, bodies: list[bytes], asked_ns: int) -> None:
        """Take the messages of a lease; one that was written before is the same again."""
        if number <= self.last:  # by a job that does not know yet that another one goes on
            return
        before = self.written.get(number)
        if before is None:
            self.written[number] = bodies
            for body in bodies:
                self.history.leased(self.queue, body, asked_ns, self.expires)
        elif before != bodies and not self.expires:
            self.history.violated(
                f"lease {number} of {self.queue} has {len(bodies)} messages, had {len(before)}"
            )

    def settles(self, number: int) -> None:
        """Note that a lease is to be settled."""
        if number in self.written and number not in self.asked:
            self.asked.add(number)
            for body in self.written[number]:
                self.history.accepts(self.queue, body)

    def settled(self, last: int, gone: set[int]) -> None:
        """Note that leases are known to be settled, but for those whose messages come again.

        Of leases before `last` that can expire it is not known whether they did.
        """
        if gone and not self.expires:
            self.history.violated(f"leases {gone} of {self.queue} have ended before their time")
        self.last = max(self.last, last)
        for number in [each for each in self.written if each <= last]:
            for body in self.written.pop(number):
                if number in gone and number in self.asked:
                    self.history.accepts_not(self.queue, body)
                elif number not in gone and (number == last or not self.expires):
                    self.history.accepted(self.queue, body)
            self.asked.discard(number)


@final
class Job:
    """An owner of the group, until another one opens it or the time is up."""

    def __init__(self, site: Site, queue: Queue, sink: Sink) -> None:
        self._site = site
        self._queue = queue
        self._sink = sink
        self._leases: LeaseClient = site.node.leases
        self._name = site.name("j")
        self._epoch = 0

    async def run(self, seconds: float) -> None:
        """Move leases; raises FAILURES."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        opener = self._name.encode()
        answer = await self._leases.open_group(self._queue, GROUP, self._sink.ttl_ms, opener)
        if answer.status == LEASE_FENCED:  # another job opened it before this one was answered
            return
        group = self._checked(answer).group
        assert group is not None, "it was opened"
        self._epoch, settled = int(group.epoch), int(group.settled)
        self._sink.epoch = max(self._sink.epoch, self._epoch)
        while loop.time() < until:
            found = await self._move(settled + 1)
            if found is None:
                return
            settled = max(settled, found)
            await asyncio.sleep(self._site.rng.uniform(0, 0.2))

    async def _move(self, number: int) -> int | None:
        """Move the messages of a lease; return up to where leases are settled, None if fenced."""
        rng, sink = self._site.rng, self._sink
        asked_ns, epoch = self._site.process.world.now_ns, sink.epoch
        most = rng.choice((1, 5, 40))
        answer = await self._leases.lease(
            self._queue, GROUP, self._epoch, number, most, BYTES_MAX, sink.ttl_ms
        )
        if epoch > self._epoch and answer.status != LEASE_FENCED:
            self._site.history.violated(f"{self._name} leases beside a later owner of the group")
        if answer.status == LEASE_SETTLED:  # by an earlier job, which was not told
            if not sink.expires:
                sink.settled(number, set())
            return number
        if answer.status == LEASE_FENCED:
            return None
        if answer.status != LEASE_GONE or not sink.expires:
            if not self._checked(answer).count:
                return number - 1
            bodies = await self._fetch(number)
            if bodies is None:
                return None
            sink.write(number, bodies, asked_ns)
            if rng.random() < 0.2:  # the lease may expire meanwhile
                await asyncio.sleep(rng.uniform(0, 2))
        return await self._settle(number)

    async def _settle(self, number: int) -> int | None:
        """Settle a lease that was written, or has expired; return as `_move`."""
        sink = self._sink
        sink.settles(number)
        answer = await self._leases.settle(self._queue, GROUP, self._epoch, number)
        if answer.status == LEASE_FENCED:
            return None
        if answer.status != LEASE_GONE:
            self._checked(answer)
        sink.settled(number, {int(each.number) for each in answer.gone})
        return number

    async def _fetch(self, number: int) -> list[bytes] | None:
        """Return the bodies of a lease; None where it is gone or the group is another's."""
        bodies: list[bytes] = []
        total = 1
        while len(bodies) < total:
            found = await self._leases.fetch(
                self._queue, GROUP, self._epoch, number, len(bodies), 16, BYTES_MAX
            )
            if found.status != LEASE_OK:
                return None
            total = found.total
            count = int(batch_count(found.batch, 0)) if found.message_count else 0
            bodies += [message_body(found.batch, 0, at) for at in range(count)]
            if not count:
                await asyncio.sleep(RETRY_S)  # the log has to be read first
        return bodies

    def _checked(self, answer: LeaseAnswer) -> LeaseAnswer:
        if answer.status != LEASE_OK:
            name = LEASE_STATUS_NAMES[int(answer.status)]
            self._site.history.violated(f"{self._name} is told {name} by {self._queue.name}")
        return answer


async def lease_from(site: Site, sink: Sink) -> None:
    """Move messages of a queue while that is wanted, by one job after another."""
    while site.wanted.consumes or site.wanted.drains:
        found = site.node.broker.queue("/", sink.queue)
        if found is not None:
            try:
                await Job(site, found, sink).run(site.rng.uniform(0.5, 8))
            except FAILURES as error:
                site.process.note(f"job: {error}")
        await asyncio.sleep(site.rng.uniform(RETRY_S, 3))
