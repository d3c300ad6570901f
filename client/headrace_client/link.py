"""One client's way to the cluster: which node is asked, and which next when it fails."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc

from headrace_client.backoff import Backoff
from headrace_client.endpoint import Tls, channel_options
from headrace_client.error import (
    AbortedError,
    BrokerFaultError,
    ClosedError,
    ConnectFailedError,
    FencedError,
    HeadraceError,
    TooLateError,
    UnavailableError,
    from_call,
)
from headrace_client.limits import CALL_SECONDS, OPEN_SECONDS

NOT_READY: Final = "NOT_READY"  # reason of a node that has not begun with a call
NODE_KEY: Final = "headrace-node"  # of an answer's trailing metadata: the name of the node

Q = TypeVar("Q", contravariant=True)
A = TypeVar("A", covariant=True)
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Method(Protocol[Q, A]):
    """A unary method of a stub."""

    def __call__(self, request: Q, /, *, timeout: float, metadata: Any) -> Any:
        """Call it."""


class Link:
    """Channels to the endpoints, of which one is preferred until it fails."""

    def __init__(
        self,
        endpoints: Sequence[str],  # HOST:PORT each
        user: str | None = None,  # None for who is known by a certificate
        password: str = "",  # of the user
        tls: Tls | None = None,  # None for none
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.current = self.endpoints[0]  # the endpoint that is preferred
        self._options = channel_options(tls)
        self._credentials = tls.credentials() if tls is not None else None
        self._metadata: tuple[tuple[str, str], ...] = ()
        if user is not None:
            text = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._metadata = (("authorization", f"Basic {text}"),)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closed = False
        self.nodes: dict[str, str] = {}  # names by endpoint, as far as they are known

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client cannot be pickled: connect anew in the other process")

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of each call."""
        return self._metadata

    @property
    def is_closed(self) -> bool:
        """True if nothing can be called any more."""
        return self._closed

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to an endpoint.

        Raises:
            ClosedError: the client is closed.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        channel = self._channels.get(endpoint)
        if channel is None:
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(endpoint, options=self._options)
            else:
                channel = grpc.aio.secure_channel(
                    endpoint, self._credentials, options=self._options
                )
            self._channels[endpoint] = channel
        return channel

    async def close(self) -> None:
        """Close all channels; calls that are under way end."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close(None)

    def cut_off(self) -> HeadraceError:
        """Return the reason why a call was cancelled by other means than its waiter."""
        if self._closed:
            return ClosedError("the client is closed")
        return UnavailableError("the call was cut off", grpc.StatusCode.CANCELLED.name)

    def endpoint_of(self, node: str) -> str | None:
        """Return the endpoint of a node, None while it is not known."""
        return next((each for each, name in self.nodes.items() if name == node), None)

    def failed(self, endpoint: str) -> None:
        """Prefer another endpoint than one that failed: the next."""
        self.nodes.pop(endpoint, None)  # another node may be there when it is back
        if endpoint == self.current:
            at = self.endpoints.index(endpoint) + 1
            self.current = self.endpoints[at % len(self.endpoints)]

    async def call(
        self,
        method: Callable[[grpc.aio.Channel], Method[Request, Answer]],
        request: Request,
        timeout_s: float = CALL_SECONDS,
        repeat: bool = True,
        attempt_s: float | None = None,
    ) -> Answer:
        """Call a unary method, at another node where one cannot answer.

        Args:
            method: returns it for a channel.
            request: of the call.
            timeout_s: for all attempts.
            repeat: it may be done twice; otherwise only a node that has not begun is passed over.
            attempt_s: for one attempt; None for most of the time that is left.

        Raises:
            HeadraceError: it failed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        attempts = Attempts(self)
        told: HeadraceError | None = None  # why it failed, which says more than that time is over
        while True:
            endpoint = self.current
            left = deadline - loop.time()
            wait_s = left if len(self.endpoints) == 1 or not repeat else left * 2 / 3
            wait_s = max(min(wait_s, attempt_s or wait_s), 0.001)
            try:
                return await self.attempt(endpoint, method, request, wait_s)
            except HeadraceError as error:
                failure = error
            left = deadline - loop.time()
            late = isinstance(failure, TooLateError) and left > 0
            again = isinstance(failure, UnavailableError) or late
            if not again or not (repeat or failure.reason == NOT_READY):
                no_time = repeat and isinstance(failure, TooLateError)
                raise attempts.error(told) if no_time and told is not None else failure
            told = told if late else failure
            pause_s = attempts.failed(endpoint, failure)
            if pause_s >= left:
                raise attempts.error(told or failure)
            await asyncio.sleep(pause_s)

    async def attempt(
        self,
        endpoint: str,
        method: Callable[[grpc.aio.Channel], Method[Request, Answer]],
        request: Request,
        timeout_s: float,
    ) -> Answer:
        """Call a unary method at one endpoint, once.

        Raises:
            HeadraceError: it failed.
        """
        call = method(self.channel(endpoint))(request, timeout=timeout_s, metadata=self._metadata)
        with self._explained():
            answer: Answer = await call
            trailing = await call.trailing_metadata()
        for key, value in trailing or ():
            if key == NODE_KEY:
                self.nodes[endpoint] = str(value)
        return answer

    async def next_answer(self, call: Any, endpoint: str) -> Any | None:
        """Return the next answer of a stream that a broker sends without a pause, None at its end.

        Raises:
            HeadraceError: the stream is lost, or nothing came for OPEN_SECONDS.
        """
        try:
            with self._explained():
                async with asyncio.timeout(OPEN_SECONDS):
                    answer = await call.read()
        except TimeoutError:
            raise TooLateError(f"{endpoint} does not answer") from None
        return None if answer is grpc.aio.EOF else answer  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise what became of a call as HeadraceError; a task's own cancellation passes."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise from_call(error) from None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise self.cut_off() from None


def is_cancelled() -> bool:
    """Return whether the task that runs is being cancelled.

    If not, a CancelledError in it says that a call was: gRPC does that when a channel is closed.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Attempts:
    """Attempts of one call or stream, at one endpoint after the other."""

    def __init__(self, link: Link, rng: Callable[[], float] = random.random) -> None:
        self._link = link  # whose endpoints
        self._backoff = Backoff(rng)
        self._tried: dict[str, str] = {}  # what became of each endpoint since the last pause
        self._known: dict[str, str] = {}

    def failed(self, endpoint: str, error: HeadraceError) -> float:
        """Note an attempt that failed, and return how many seconds to wait before the next.

        There is no pause as long as another endpoint was not tried.
        """
        self._link.failed(endpoint)
        self._tried[endpoint] = self._known[endpoint] = error.text
        if self._link.current not in self._tried:
            return 0.0
        self._tried.clear()
        return self._backoff.failed(error.retry_after_s)

    def succeeded(self) -> None:
        """Begin anew."""
        self._tried.clear()
        self._known.clear()
        self._backoff.succeeded()

    def error(self, last: HeadraceError) -> HeadraceError:
        """Return what to raise when there is no time for another attempt."""
        if len(self._link.endpoints) == 1 or len(self._known) < 2:
            return last
        text = "; ".join(f"{endpoint}: {each}" for endpoint, each in self._known.items())
        return ConnectFailedError(text, last.code, last.reason, retry_after_s=last.retry_after_s)


def is_passing(error: HeadraceError) -> bool:
    """Return whether a stream that ended so is worth to be opened again, here or elsewhere."""
    if isinstance(error, FencedError):
        return False
    return isinstance(error, UnavailableError | AbortedError | BrokerFaultError | TooLateError)
