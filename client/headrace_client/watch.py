"""Streams that tell how something stands and then each change, whatever happens to the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

import grpc

from headrace_client.error import (
    ClosedError,
    ExhaustedError,
    HeadraceError,
    UnavailableError,
    from_call,
)
from headrace_client.limits import (
    CALL_SECONDS,
    WATCH_BEATS_MISSED,
    WATCH_HEARTBEAT_SECONDS,
    WATCHED_MAX,
)
from headrace_client.link import Attempts, Link, is_cancelled, is_passing

log = logging.getLogger(__name__)


class Keyed(Protocol):
    """A state of something."""

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the state."""


S = TypeVar("S", bound=Keyed)


class Watch(Generic[S]):
    """Endless asynchronous iterator; as a context manager it ends the watch.

    It reads on only as far as it is read itself. When the node that tells is lost, another one
    does: what is over by then is told as such, and nothing is told twice.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        call: Callable[[grpc.aio.Channel], Any],
        read: Callable[[Any], Iterable[S]],
        is_over: Callable[[S], bool],
        ended: Callable[[S], S],
        same: Callable[[S, S], bool],
    ) -> None:
        self.is_complete = False  # all that stands so now has been told
        self.is_connected = False  # a node tells; otherwise things stand as they did
        self._link = link  # to the cluster
        self._name = name  # for the log
        self._call = call  # begins a stream
        self._read = read  # returns the states in an answer
        self._is_over = is_over  # a state is one that need not be remembered
        # returns such a state for one that was told before and is not there any more
        self._ended = ended
        self._same = same  # two states of one thing differ in their figures at most
        self._attempts = Attempts(link)
        self._stream: Any = None
        self._endpoint = ""
        self._beat_s = WATCH_HEARTBEAT_SECONDS
        self._told: dict[tuple[str, ...], S] = {}  # what is not over
        self._seen: set[tuple[str, ...]] | None = None  # in the snapshot that is coming in
        self._waiting: deque[S] = deque()  # of one answer
        self._closed = False

    async def __aenter__(self) -> Watch[S]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._closed = True
        self._drop()

    @property
    def current(self) -> tuple[S, ...]:
        """States that were told and are not over."""
        return tuple(self._told.values())

    def __aiter__(self) -> Watch[S]:
        return self

    async def __anext__(self) -> S:
        """Return the next change.

        Raises:
            HeadraceError: there will be none: one may not look, for instance.
        """
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            await self._more()
        return self._waiting.popleft()

    async def snapshot(self, timeout_s: float = CALL_SECONDS) -> tuple[S, ...]:
        """Return how it stands now; changes after that are told by the iterator.

        Raises:
            TimeoutError: no node has told it in time.
            HeadraceError: one may not look.
        """
        async with asyncio.timeout(timeout_s):
            while not self.is_complete:
                if self._closed:
                    raise ClosedError(f"the {self._name} is closed")
                await self._more()
        self._waiting.clear()
        return self.current

    async def _more(self) -> None:
        """Take an answer, on a new stream if there is none."""
        try:
            if self._stream is None:
                self._begin()
            async with asyncio.timeout(WATCH_BEATS_MISSED * self._beat_s):
                answer = await self._stream.read()
            if answer is grpc.aio.EOF:  # type: ignore[attr-defined]
                raise UnavailableError("the broker has ended the stream")
        except asyncio.CancelledError:
            self._drop()  # to cancel a read ends its stream
            if is_cancelled():
                raise
            if not self._closed:
                await self._again(self._link.cut_off())
        except TimeoutError:
            await self._again(UnavailableError(f"{self._endpoint} is silent"))
        except grpc.aio.AioRpcError as error:
            await self._again(from_call(error))
        except UnavailableError as error:
            await self._again(error)
        else:
            self._take(answer)

    def _begin(self) -> None:
        self._endpoint = self._link.current
        self._stream = self._call(self._link.channel(self._endpoint))
        self._beat_s = WATCH_HEARTBEAT_SECONDS
        self._seen = set()

    def _take(self, answer: Any) -> None:
        self.is_connected = True
        if answer.heartbeat_ms:
            self._beat_s = answer.heartbeat_ms / 1000
        for state in self._read(answer):
            self._note(state)
        if answer.snapshot_complete and self._seen is not None:
            self._attempts.succeeded()
            over = [key for key in self._told if key not in self._seen]
            self._waiting.extend(self._ended(self._told.pop(key)) for key in over)
            self._seen = None
            self.is_complete = True

    def _note(self, state: S) -> None:
        key = state.key
        known = self._told.get(key)
        if self._seen is not None:
            self._seen.add(key)
            if known is not None and self._same(known, state):
                return
        if self._is_over(state):
            self._told.pop(key, None)
        elif known is not None or len(self._told) < WATCHED_MAX:
            self._told[key] = state
        self._waiting.append(state)

    async def _again(self, failure: HeadraceError) -> None:
        """Wait before another attempt.

        Raises:
            HeadraceError: it makes no sense.
        """
        self._drop()
        if not (is_passing(failure) or isinstance(failure, ExhaustedError)):
            self._closed = True
            raise failure
        pause_s = self._attempts.failed(self._endpoint, failure)
        log.info("%s: %s: %s; again in %.1f s", self._name, self._endpoint, failure.text, pause_s)
        await asyncio.sleep(pause_s)

    def _drop(self) -> None:
        self.is_connected = False
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(grpc.aio.AioRpcError):
                stream.cancel()
