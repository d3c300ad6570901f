"""Queues that answer when the test says so, and a router that knows the way to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import AnyCommand, encode_request
from headrace_broker.catalog.event import Event
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.codecs.header_edit import Death, dead_letter
from headrace_broker.core.queue.messages.effect import REASON_EXPIRED
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked, BlockedState
from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Binding, Exchange, Node, Queue, User
from headrace_broker.model.flow import LIMIT_DISK, Cause
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.dead_letter.expiry_account import ExpiryAccounts
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublisher
from headrace_broker.runtime.dead_letter.service import DeadLetterService
from headrace_broker.runtime.intake.remote_debt import RemoteDebts
from headrace_broker.runtime.routing.router import Router


class Link:
    def __init__(self) -> None:
        self.gone = False


class Session:
    """The session with a queue that answers nothing by itself."""

    def __init__(self, queue: Queue, listener: Any) -> None:
        self.queue = queue
        self.link = Link()
        self.listener = listener
        self.gathered: list[tuple[Publish, PendingConfirm]] = []
        self.sent: list[tuple[Publish, PendingConfirm]] = []
        self.closed = False
        self.causes = CauseRuns()

    def publish(self, publishes: list[Publish], pending_confirm: PendingConfirm) -> bool:
        assert not self.closed
        self.gathered.extend((publish, pending_confirm) for publish in publishes)
        return True

    def flush(self) -> None:
        self.sent += self.gathered
        self.gathered.clear()

    def close(self) -> None:
        self.closed = True

    def take(self, count: int | None = None) -> list[PendingConfirm]:
        """The pending confirms of the sent dead letters, which are answered now."""
        pending_confirms = [pending_confirm for _, pending_confirm in self.sent[:count]]
        self.sent = self.sent[len(pending_confirms) :]
        return pending_confirms

    def confirm(self, count: int | None = None) -> None:
        self.listener.on_confirmed(self, self.take(count))

    def refuse(self) -> None:
        pending_confirms = self.take()
        for pending_confirm in pending_confirms:
            pending_confirm.refuse(pending_confirm.first, pending_confirm.last)
        self.listener.on_rejected(self, pending_confirms)

    def delete(self) -> None:
        self.link.gone = True
        self.flush()
        self.confirm()

    @property
    def bodies(self) -> list[bytes]:
        return [publish.body for publish, _ in self.sent]


class Network:
    """A catalog, the router that follows it, and sessions with its queues."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.router = Router()
        self.events: list[Event] = []
        self._index = 0
        self.do(commands.Bootstrap((Node(1, "n1", "h:1"),), "/", User("guest", b"", b"")))
        self.opened: list[Session] = []
        self.sent: list[tuple[int, bytes]] = []
        self.ledger = Ledger(FlowLimits())
        self.debts = RemoteDebts((1, "n1"), self.ledger, lambda: 1, self._send)
        self.charges = self.debts.charges
        self.publisher = DeadLetterPublisher(self._open, self.charges)
        self.expiries = ExpiryAccounts("n1", self.ledger, self.charges, self._new_cause)
        self.blocked = BlockedState()
        self._causes = iter(range(1 << 20, 1 << 30))

    def _send(self, node: int, payload: bytes) -> bool:
        self.sent.append((node, payload))
        return True

    def _new_cause(self) -> int:
        return session_id(1, 1, next(self._causes))

    def block(self, on: bool) -> None:
        """Begin or end an alarm."""
        self.blocked.change(Blocked("low", LIMIT_DISK) if on else NOT_BLOCKED)

    def account(self, name: str) -> tuple[Account, int]:
        """An account of this node, and a session that it is charged for."""
        cause = self._new_cause()
        account = self.ledger.open(Cause(name, "connection", name, "n1"))
        self.charges.register(cause, account)
        return account, cause

    def service(self, publisher: DeadLetterPublisher | None = None) -> DeadLetterService:
        """A node's service; its sessions are this network's."""
        chosen = self.publisher if publisher is None else publisher
        service = DeadLetterService(self.router, chosen, self.expiries, self.blocked)
        service.release_all()
        self.debts.on_clear_funds = service.go_on
        return service

    def _open(self, queue: Queue, listener: Any, causes: CauseRuns) -> Any:
        session = Session(queue, listener)
        session.causes = causes
        self.opened.append(session)
        return session

    def do(self, command: AnyCommand) -> Any:
        self._index += 1
        data = encode_request(Request(1, 1, self._index), command)
        result, self.events = self.catalog.apply(self._index, data)
        self.router.on_events(self.events)
        return result.value if isinstance(result, Ok) else None

    def queue(self, name: str) -> Queue:
        queue: Queue = self.do(commands.DeclareQueue("/", name, "classic"))
        return queue

    def exchange(self, name: str, kind: str = "fanout") -> None:
        self.do(commands.DeclareExchange(Exchange("/", name, kind)))

    def bind(self, source: str, queue: str, key: str = "") -> None:
        self.do(commands.Bind(Binding("/", source, "queue", queue, key)))

    def session(self, name: str) -> Session:
        """The newest open session with a queue."""
        found = [each for each in self.opened if each.queue.name == name and not each.closed]
        return found[-1]


def short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def new_letter(
    message_id: int = 1,
    body: bytes = b"body",
    exchange: str = "orders",
    key: str = "new",
    properties: bytes = b"\x00\x00",
    reason: int = REASON_EXPIRED,
    trusted: bool = True,
) -> DeadLetter:
    return DeadLetter(message_id, reason, short(exchange) + short(key), properties, body, trusted)


def make_died(*deaths: tuple[str, str]) -> bytes:
    """Properties of a message that died of this, the newest last."""
    properties = b"\x00\x00"
    for queue, reason in deaths:
        death = Death(queue.encode(), reason.encode(), b"x", b"k", 1)
        properties = dead_letter(properties, death, True, True).data
    return properties


@pytest.fixture
def network() -> Network:
    """An empty catalog, without any sessions yet."""
    return Network()


@pytest.fixture(scope="session")
def make_network() -> type[Network]:
    """Makes catalogs with nothing in them."""
    return Network


@pytest.fixture
def letter() -> Callable[..., DeadLetter]:
    """Make a letter."""
    return new_letter


@pytest.fixture(scope="session")
def make_letter() -> Callable[..., DeadLetter]:
    """Make a letter, for a run of many examples."""
    return new_letter


@pytest.fixture
def died() -> Callable[..., bytes]:
    """Make properties with a past."""
    return make_died


@pytest.fixture
def run() -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Run a scenario on an event loop."""

    def runner(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(scenario())

    return runner


@pytest.fixture
def turns() -> Callable[..., Coroutine[Any, Any, None]]:
    """Let the loop turn a few times."""

    async def turn(count: int = 6) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    return turn
