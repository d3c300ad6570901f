"""Certificates, and a node with a real catalog for the HTTP API and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.harness.authority import Authority, Pair

from headrace_broker.catalog.command import (
    AnyCommand,
    Bootstrap,
    CommandError,
    PutUser,
    encode_request,
)
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.permission_watch import PermissionWatches
from headrace_broker.catalog.proposal import command_problem
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Refused, Result
from headrace_broker.catalog.version import stamped
from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.archive import ArchiveStatus
from headrace_broker.model.definition import Node, Queue, User
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError
from headrace_broker.model.stats import StatsRow
from headrace_broker.model.status import LeaseGroupStatus, Overview, QueueCounts, QueueStatus
from headrace_broker.runtime.administration.log_level import LogLevels
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.clients.client_list import ClientListing
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.inspect.browsing import Page
from headrace_broker.runtime.inspect.message_service import FetchedMessage, Moved
from headrace_broker.runtime.intake.flow_settings import FlowSettings, Setting
from headrace_broker.runtime.metrics.detailed import ObjectTable
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.metrics.requests import HttpMeter
from headrace_broker.runtime.rpc.correlator import ANSWER_SECONDS_MAX, Rpc
from headrace_broker.runtime.rpc.leader import LeaderUnavailableError
from headrace_broker.runtime.rpc.question import Stats
from headrace_broker.runtime.security.authenticator import Verdict
from headrace_broker.runtime.security.page_logins import PageLogins

USERS: dict[str, tuple[str, ...]] = {
    "guest": ("administrator",),
    "alice": ("management",),
    "pol": ("policymaker",),
}
USERS |= {"mon": ("monitoring",), "app": ()}


class FakeHosting:
    """Every queue has a leader at once."""

    def renewed_members(self) -> tuple[int, ...]:
        return ()

    async def wait_leader(self, queue: Queue, seconds: float) -> bool:
        return True


class FakeMessages:
    """A queue's messages as a test wants them; records requests.

    Attributes:
        asked: names and arguments of the calls.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.page = Page([], False)
        self.fetched: list[FetchedMessage] = []
        self.removed = 1
        self.moved = Moved()

    async def browse(self, queue: Queue, after: int, limit: int, body_bytes: int) -> Page:
        self.asked.append(("browse", queue.name, after, limit, body_bytes))
        return self.page

    async def fetch(self, queue: Queue, count: int, operation: int) -> list[FetchedMessage]:
        self.asked.append(("fetch", queue.name, count, operation))
        return self.fetched

    async def remove(self, queue: Queue, message_ids: list[int]) -> int:
        self.asked.append(("remove", queue.name, message_ids))
        return self.removed

    async def move(
        self, queue: Queue, message_ids: list[int], route: bytes, user: str = ""
    ) -> Moved:
        self.asked.append(("move", queue.name, message_ids, route))
        return self.moved


class FakeFlowReport:
    """Flow states of queues by group, as a test wants them."""

    def __init__(self) -> None:
        self.flows: dict[int, QueueFlow] = {}

    async def moving_queues(self) -> dict[int, QueueFlow]:
        return self.flows

    async def queue(self, queue: Queue) -> QueueFlow | None:
        return self.flows.get(queue.group)


class FakePublisher:
    """Takes messages, and says whether they were routed.

    Attributes:
        published: what came.
    """

    def __init__(self) -> None:
        self.routed = True
        self.published: list[tuple[str, bytes, bytes, bytes, str]] = []

    async def publish(
        self, vhost: str, route: bytes, properties: bytes, body: bytes, user: str
    ) -> bool:
        self.published.append((vhost, route, properties, body, user))
        return self.routed


class FakeStats:
    """Figures as a test wants them.

    Attributes:
        rows: of the cluster.
        missing: nodes that do not answer.
        asked: questions.
    """

    def __init__(self) -> None:
        self.rows: list[StatsRow] = []
        self.missing: tuple[str, ...] = ()
        self.asked: list[Stats] = []

    async def ask(
        self, question: Stats, seconds: float = ANSWER_SECONDS_MAX
    ) -> tuple[list[StatsRow], tuple[str, ...]]:
        self.asked.append(question)
        return self.rows, self.missing

    async def sample_forever(self) -> None:
        await asyncio.Event().wait()


class FakeMetrics:
    """Samples as a test wants them.

    Attributes:
        http: counts requests.
        per_object: whether single objects are told.
        found: samples of the node.
        of_objects: what is told of single objects, by family and vhost.
    """

    def __init__(self) -> None:
        self.http = HttpMeter()
        self.per_object = False
        self.found: Callable[[], Iterable[Sample]] = tuple
        self.of_objects: Callable[..., Iterator[ObjectTable]] | None = None

    def samples(self) -> Iterator[Sample]:
        yield from self.found()
        yield from self.http.samples()

    def objects(
        self, families: Collection[str], vhosts: Collection[str] = ()
    ) -> Iterator[ObjectTable]:
        assert self.of_objects is not None
        return self.of_objects(families, vhosts)


class FakeLeases:
    """Groups that lease messages, as a test wants them.

    Attributes:
        groups: of all queues.
        missing: nodes that do not answer.
        closed: queues and names of groups that were closed.
    """

    def __init__(self) -> None:
        self.groups: list[LeaseGroupStatus] = []
        self.missing: tuple[str, ...] = ()
        self.closed: list[tuple[str, str]] = []

    async def everyone(self) -> tuple[list[LeaseGroupStatus], tuple[str, ...]]:
        return self.groups, self.missing

    async def of(self, queue: Queue) -> list[LeaseGroupStatus]:
        return [
            group
            for group in self.groups
            if (group.vhost, group.queue) == (queue.vhost, queue.name)
        ]

    async def close(self, queue: Queue, name: str) -> int:
        if name not in [group.name for group in await self.of(queue)]:
            raise AmqpError(NOT_FOUND, f"no group '{name}'")
        self.closed.append((queue.name, name))
        return 0


class FakeArchives:
    """Archives as a test wants them.

    Attributes:
        found: by name of the queue.
        closed: queues and names of groups that were closed.
    """

    def __init__(self) -> None:
        self.found: dict[str, ArchiveStatus] = {}
        self.closed: list[tuple[str, str]] = []

    async def of(self, queue: Queue) -> ArchiveStatus:
        if queue.name not in self.found:
            raise AmqpError(NOT_FOUND, f"queue '{queue.name}' never had an archive")
        return self.found[queue.name]

    async def close_group(self, queue: Queue, name: str) -> None:
        if name not in [group.name for group in (await self.of(queue)).groups]:
            raise AmqpError(NOT_FOUND, f"no group '{name}'")
        self.closed.append((queue.name, name))


class FakeNode:
    """A node with a real catalog; log-ins are right when the password is the user's name.

    Attributes:
        behind: commands that were decided and are not applied here yet.
        lost: there is no quorum.
        here: names of the queues with a replica here.
        flow_report: what explains flow control.
        messages: how many messages a queue holds; one that is not there has no leader.
    """

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.behind: list[AnyCommand] = []
        self.lost = False
        self.here: set[str] = set()
        self.messages: dict[str, int] = {}
        self.asked_leaders: list[str] = []  # queues whose leaders were asked one by one
        self.clock = Clock()
        self.message_service = FakeMessages()
        self.purged: list[str] = []
        self.closed: list[tuple[str, str]] = []
        self.listing = ClientListing([])
        self.missing: tuple[str, ...] = ()
        self.flow_settings = FlowSettings(FlowLimits(), {})
        self.alarms_on: list[AlarmStatus] = []
        self.flow_report: Any = FakeFlowReport()
        self.standings = PermissionWatches(
            self.catalog, lambda call: asyncio.get_running_loop().call_soon(call), lambda: 0
        )
        rpc = Rpc(1, lambda peer, data: False)
        self.page_logins = PageLogins(1, self.catalog, rpc)
        self.log_levels = LogLevels(rpc, {1: "n1"}, [1])
        self.stats = FakeStats()
        self.metrics = FakeMetrics()
        self.leases = FakeLeases()
        self.archives = FakeArchives()
        self.publisher = FakePublisher()
        self.certificate_end_s: float | None = None
        self.critical: list[tuple[str, str]] | None = None
        self.leaderless: list[tuple[str, str]] = []
        self.reason = ""
        self.topology: Any = Topology(1, self, FakeHosting(), self)  # type: ignore[arg-type]
        guest = User("guest", b"s", b"h", USERS["guest"])
        self.do(Bootstrap((Node(1, "n1", "h:1"),), "/", guest, grant=True))
        for name, tags in USERS.items():
            self.do(PutUser(User(name, b"s", b"h", tags)))

    def do(self, command: AnyCommand) -> Result:
        index = self.catalog.applied_index + 1
        command = stamped(self.catalog, 1, command)
        data = encode_request(Request(1, 1, index), command)
        result, events = self.catalog.apply(index, data)
        self.flow_settings.on_events(events)
        self.standings.on_events(events)
        return result

    # Administration, and what Topology asks for

    @property
    def view(self) -> CatalogView:
        return self.catalog

    async def submit(self, command: AnyCommand) -> Result:
        if self.lost:
            raise CatalogUnavailableError("no quorum")
        problem = command_problem(command)
        if problem:
            return Refused(problem)
        try:
            return self.do(command)
        except CommandError as error:
            return Refused(str(error))

    def snapshot(self) -> bytes:
        return self.catalog.snapshot()

    def renewed_members(self) -> tuple[int, ...]:
        return ()

    async def catch_up(self) -> None:
        if self.lost:
            raise AmqpError(INTERNAL_ERROR, "no quorum")
        for command in self.behind:
            self.do(command)
        self.behind.clear()

    async def ask(self, queue: Queue) -> QueueCounts:
        if queue.name not in self.messages:
            raise LeaderUnavailableError("no leader")
        return QueueCounts(self.messages[queue.name], 0, 0)

    async def led_counts(self, queue: Queue) -> tuple[QueueCounts, str]:
        """As `counts`, from a leader called `far`."""
        self.asked_leaders.append(queue.name)
        return await self.counts(queue), "far"

    async def counts(self, queue: Queue) -> QueueCounts:
        try:
            return await self.ask(queue)
        except LeaderUnavailableError as error:
            raise AmqpError(INTERNAL_ERROR, str(error)) from error

    async def purge(self, queue: Queue) -> int:
        self.purged.append(queue.name)
        return 0

    async def clients(
        self, channels: bool = False, rows_max: int = LISTING_ROWS_MAX
    ) -> ClientListing:
        rows = [row for row in self.listing.rows if (row.channel is not None) == channels]
        left_out = self.listing.left_out + max(len(rows) - rows_max, 0)
        return ClientListing(rows[:rows_max], self.listing.missing, left_out)

    async def close_connection(self, name: str, reason: str) -> tuple[int, tuple[str, ...]]:
        self.closed.append((name, reason))
        names = {row.connection.name for row in self.listing.rows}
        return int(name in names), self.missing

    # StatusSource

    def not_ready_reason(self) -> str:
        return self.reason

    def certificate_ends_s(self) -> float | None:
        return self.certificate_end_s

    def critical_queues(self) -> list[tuple[str, str]] | None:
        return self.critical

    def leaderless_queues(self) -> list[tuple[str, str]]:
        return self.leaderless

    def overview(self) -> Overview:
        return Overview("test", "n1", "n1", ())

    def queue(self, vhost: str, name: str) -> QueueStatus | None:
        found = self.catalog.queue(vhost, name)
        return self._status(found) if found is not None else None

    def _status(self, queue: Queue) -> QueueStatus:
        return QueueStatus(
            queue.vhost,
            queue.name,
            queue.kind,
            queue.durable,
            queue.exclusive,
            queue.auto_delete,
            queue.arguments,
            "n1",
            ("n1",),
            counts=QueueCounts(0, 0, 0) if queue.name in self.here else None,
        )

    def alarms(self) -> list[AlarmStatus]:
        return self.alarms_on

    def flow_limits(self) -> dict[str, Setting]:
        return {name: self.flow_settings.find(name) for name in PARAMETERS}

    async def authenticate(self, user: str, password: str, host: str) -> Verdict:
        right = user == password and self.catalog.user(user) is not None
        return Verdict(right, epoch=self.catalog.session_epoch(user))

    def admits(self, user: str, host: str) -> bool:
        return self.catalog.user(user) is not None


class Certificates:
    """Certificates of the TLS tests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.server: Pair = self.authority.sign("/CN=localhost", "server")
        self.client: Pair = self.authority.sign("/O=mill, race/CN=guest", "client")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority with a server and a client named guest, and a stranger."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def fake_node() -> FakeNode:
    return FakeNode()
