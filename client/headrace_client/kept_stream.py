"""A stream to the broker that is opened again when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Protocol

import grpc

from headrace_client.error import HeadraceError, TooLateError, UnavailableError, from_call
from headrace_client.limits import BACKOFF_SECONDS_MAX, CALL_SECONDS, OPEN_SECONDS
from headrace_client.link import Attempts, Link, is_cancelled, is_passing

log = logging.getLogger(__name__)


class StreamUser(Protocol):
    """User of a stream: a publisher or a consumer. Calls come one at a time."""

    is_over: bool  # no stream is needed any more; the end of one is in order
    has_progress: bool  # this stream was good for something

    def call(self, channel: grpc.aio.Channel) -> Any:
        """Return a call, to which nothing was written yet."""

    def opening(self) -> Any:
        """Return its first request."""

    def begin(self, answer: Any) -> None:
        """Take the first answer.

        Raises:
            HeadraceError: it is not what it should be.
        """

    async def place(self) -> str | None:
        """Return the endpoint at which the first stream is best opened, None for any."""

    async def write(self, call: Any) -> None:
        """Write to the call, until it is cancelled; its reader notices the end."""

    def receive(self, answer: Any) -> None:
        """Take another answer.

        Raises:
            HeadraceError: the stream is to end.
        """

    def lost(self, error: HeadraceError) -> None:
        """The stream is gone, and perhaps another one comes."""

    def failed(self, error: HeadraceError) -> None:
        """No other one comes."""


class KeptStream:
    """See the module."""

    def __init__(
        self, link: Link, user: StreamUser, name: str, give_up_after_s: float | None
    ) -> None:
        self._link = link  # to the cluster
        self._user = user  # what it is kept for
        self._name = name  # of that, for the log
        # seconds without a stream after which there shall be none; None for never
        self._give_up_after_s = give_up_after_s
        self._ready: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._fatal: HeadraceError | None = None
        self._has_begun = False

    @property
    def is_started(self) -> bool:
        """True once `start` was called."""
        return self._task is not None

    async def start(self) -> None:
        """Wait for the first stream; one that was started is left alone.

        Raises:
            HeadraceError: there is none.
        """
        if self._task is not None:
            return
        self._ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"headrace-{self._name}")
        try:
            await self._ready
        except asyncio.CancelledError:
            await self.stop()
            self._task = self._ready = None  # as if it had not been called
            raise
        except BaseException:
            await self.stop()
            raise

    async def wait(self, timeout_s: float) -> None:
        """Wait until the stream has ended, or for so long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)

    async def stop(self) -> None:
        """End the stream."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def fatal(self, error: HeadraceError) -> HeadraceError:
        """Return an error after which no other stream is wanted."""
        self._fatal = error
        return error

    async def _run(self) -> None:
        try:
            await self._keep()
        except Exception as error:
            log.exception("%s: a fault of the client", self._name)
            self._give_up(HeadraceError(f"a fault of the client: {error!r}"))

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        attempts = Attempts(self._link)
        lost_at = loop.time()
        place = await self._user.place()
        while True:
            endpoint, begun = place or self._link.current, loop.time()
            place = None  # those that follow are opened where it goes soonest
            failure = await self._attempt(endpoint)
            if failure is None:
                return
            if self._has_begun:
                lost_at = loop.time()
            self._user.lost(failure)
            if self._user.is_over:
                return
            if self._user.has_progress or loop.time() - begun > BACKOFF_SECONDS_MAX:
                attempts.succeeded()
            if not self._may_try_again(failure):
                self._give_up(failure)
                return
            pause_s = attempts.failed(endpoint, failure)
            if self._is_too_long(loop.time() + pause_s - lost_at):
                self._give_up(attempts.error(failure))
                return
            log.info("%s: %s: %s; again in %.1f s", self._name, endpoint, failure.text, pause_s)
            await asyncio.sleep(pause_s)

    async def _attempt(self, endpoint: str) -> HeadraceError | None:
        """Run one stream to its end, and return why it ended; None for in order."""
        self._has_begun = False
        self._user.has_progress = False
        try:
            await self._stream(endpoint)
        except grpc.aio.AioRpcError as error:
            return from_call(error)
        except HeadraceError as error:
            return error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return self._link.cut_off()
        return None

    async def _stream(self, endpoint: str) -> None:
        user = self._user
        call = user.call(self._link.channel(endpoint))
        writer: asyncio.Task[None] | None = None
        try:
            user.begin(await self._open(call, endpoint))
            self._has_begun = True
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(None)
            writer = asyncio.create_task(self._write(call), name=f"headrace-{self._name}-writer")
            while (answer := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                user.receive(answer)
            if not user.is_over:
                raise UnavailableError("the broker has ended the stream")
        finally:
            if writer is not None:
                writer.cancel()
                await asyncio.wait({writer})
            call.cancel()
            if writer is not None and not writer.cancelled():
                writer.result()  # its fault, if it has one, is why the stream has ended

    async def _open(self, call: Any, endpoint: str) -> Any:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await call.write(self._user.opening())
                answer = await call.read()
        except TimeoutError:
            raise TooLateError(f"{endpoint} does not answer") from None
        except asyncio.InvalidStateError:  # it ended meanwhile, and to read says how
            answer = await call.read()
        if answer is grpc.aio.EOF:  # type: ignore[attr-defined]
            raise UnavailableError(f"{endpoint} has ended the stream at once")
        return answer

    async def _write(self, call: Any) -> None:
        try:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._user.write(call)
        except Exception:
            call.cancel()  # or who reads would go on, and nothing be written any more
            raise

    def _may_try_again(self, failure: HeadraceError) -> bool:
        if failure is self._fatal:
            return False
        if self._is_first:
            return isinstance(failure, UnavailableError | TooLateError)
        return is_passing(failure)

    def _is_too_long(self, seconds: float) -> bool:
        if self._is_first:
            return seconds > CALL_SECONDS
        return self._give_up_after_s is not None and seconds > self._give_up_after_s

    @property
    def _is_first(self) -> bool:
        return self._ready is not None and not self._ready.done()

    def _give_up(self, error: HeadraceError) -> None:
        self._user.failed(error)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
