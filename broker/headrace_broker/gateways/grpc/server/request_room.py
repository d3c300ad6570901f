"""Room for requests of calls with a single one, while they are read, and mostly served.

gRPC says nothing of how large a request is before it has all of it. So one that is read counts as
the largest, and once it is there as what its objects may take, until its call ends. Calls that are
answered with a stream leave when their request is there: their services count them. Addresses from
which calls wait take turns: connections cost nothing, so they are not told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from typing import Any, Final

import grpc

from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError
from headrace_broker.gateways.grpc.server.request_parser import Parse
from headrace_broker.model.limits import (
    GRPC_PARSED_BYTES,
    GRPC_REQUEST_HURRY_SECONDS,
    GRPC_REQUEST_SECONDS,
    GRPC_REQUESTS_BYTES,
    GRPC_REQUESTS_BYTES_OF_ADDRESS,
    GRPC_REQUESTS_WAITING_MAX,
)

NO_REQUEST: Final = "the call has no request"

_EXHAUSTED: Final = grpc.StatusCode.RESOURCE_EXHAUSTED


class _Reading(Awaitable[Any]):
    """Awaits a request that has to come within a time.

    The time is over when the request is there, though its task may have to wait for its turn.

    Args:
        seconds: the time.
    """

    def __init__(
        self, requests: AsyncIterator[Any], until: asyncio.Timeout, seconds: float
    ) -> None:
        self._requests = requests  # of the call
        self._until = until  # ends the call when it is late
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._end = self._began + seconds
        self._timer: asyncio.Handle = self._loop.call_at(self._end, self._due)
        self._waits: asyncio.Future[Any] | None = None  # for this future
        self._is_late = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = anext(self._requests).__await__()
        failure: BaseException | None = None
        while True:
            try:
                waits = steps.send(None) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end.value
            failure, self._waits = None, waits
            if self._is_late:  # what it waited for was not the whole request
                self._expire()
            try:
                yield waits
            except BaseException as error:  # noqa: BLE001 - it is the iterator's
                failure = error

    def hurry(self) -> None:
        """Leave it less time."""
        soon = self._began + GRPC_REQUEST_HURRY_SECONDS
        if soon < self._end:
            self._end = soon
            self._timer.cancel()
            self._timer = self._loop.call_at(soon, self._due)

    def close(self) -> None:
        """Be late no more."""
        self._timer.cancel()

    def _due(self) -> None:
        """Check in the next turn: input that came while the loop was busy is known by then."""
        self._timer = self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._waits is not None and self._waits.done():
            self._is_late = True
        else:
            self._expire()

    def _expire(self) -> None:
        if not self._until.expired():
            self._until.reschedule(self._loop.time())


class RequestRoom:
    """Memory of the requests of a node's calls.

    Attributes:
        data: that are taken.
    """

    def __init__(self, request_bytes_max: int) -> None:
        self.byte_count = 0
        self._largest = request_bytes_max  # bytes of the largest that gRPC takes
        self._by_address: dict[str, int] = {}
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}  # by address, in turn
        self._waiting_count = 0
        self._readings: set[_Reading] = set()

    @contextlib.asynccontextmanager
    async def read(
        self, address: str, requests: AsyncIterator[bytes], parse: Parse
    ) -> AsyncIterator[Any]:
        """Read the request of a call with a single one; within, it has its room.

        Args:
            address: where it comes from.
            requests: of the call, as bytes.
            parse: makes the request of them, or refuses it with a CallError.

        Raises:
            CallError: INVALID_ARGUMENT, there is none, or it is not what it has to be;
                DEADLINE_EXCEEDED, it does not come; RESOURCE_EXHAUSTED, it is too large, or too
                many calls wait for room.
        """
        await self._enter(address)
        taken = self._largest
        try:
            data = await self._first(requests)
            request = parse(data)
            taken = len(data) * GRPC_PARSED_BYTES
            self._give(address, self._largest - taken)
            del data
            yield request
        finally:
            self._give(address, taken)

    async def _enter(self, address: str) -> None:
        """Wait until there is room for one more of the largest."""
        if address not in self._waiting and self._fits(address):
            self._take(address)
            return
        if self._waiting_count >= GRPC_REQUESTS_WAITING_MAX:
            text = (
                f"{self._waiting_count} calls wait until their requests may be read, "
                "which is the maximum of a node"
            )
            raise CallError(_EXHAUSTED, "TOO_MANY_REQUESTS", text, retry_ms=RETRY_MS)
        may_go = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, {})[may_go] = None
        self._waiting_count += 1
        self._hurry()
        try:
            await may_go
        except asyncio.CancelledError:
            if may_go.cancelled():
                self._leave_line(address, may_go)
            else:
                self._give(address, self._largest)  # it was let in as its call ended
            raise

    def _leave_line(self, address: str, may_go: asyncio.Future[None]) -> None:
        """Wait no more: a line holds those who wait, and is there while somebody does."""
        line = self._waiting[address]
        del line[may_go]
        self._waiting_count -= 1
        if not line:
            del self._waiting[address]

    def _fits(self, address: str) -> bool:
        """Return whether one more fits; one always does where there is no other."""
        if self._is_full:
            return False
        taken = self._by_address.get(address, 0)
        return not taken or taken + self._largest <= GRPC_REQUESTS_BYTES_OF_ADDRESS

    @property
    def _is_full(self) -> bool:
        return self.byte_count > 0 and self.byte_count + self._largest > GRPC_REQUESTS_BYTES

    def _take(self, address: str) -> None:
        self.byte_count += self._largest
        self._by_address[address] = self._by_address.get(address, 0) + self._largest

    def _give(self, address: str, byte_count: int) -> None:
        self.byte_count -= byte_count
        left = self._by_address.pop(address, 0) - byte_count
        if left:
            self._by_address[address] = left
        self._look()

    def _look(self) -> None:
        """Admit waiters for whom there is room."""
        if self._is_full:
            return
        for address in list(self._waiting):
            if not self._fits(address):
                continue
            line = self._waiting.pop(address)
            self._waiting[address] = line  # behind the others
            may_go = next((each for each in line if not each.done()), None)
            if may_go is not None:  # else their calls have all just ended
                self._take(address)
                self._leave_line(address, may_go)
                may_go.set_result(None)

    def _hurry(self) -> None:
        """Others wait: requests that take long have less time."""
        for reading in self._readings:
            reading.hurry()

    async def _first(self, requests: AsyncIterator[bytes]) -> Any:
        """Return the bytes of the request of a call with a single one."""
        seconds = GRPC_REQUEST_HURRY_SECONDS if self._waiting else GRPC_REQUEST_SECONDS
        try:
            async with asyncio.timeout(None) as until:
                with self._reading(_Reading(requests, until, seconds)) as reading:
                    return await reading
        except TimeoutError:
            text = (
                f"the request has not come within {GRPC_REQUEST_SECONDS:.0f} s, or within "
                f"{GRPC_REQUEST_HURRY_SECONDS:.0f} s while others wait until theirs may be read"
            )
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            raise CallError(code, "REQUEST_TOO_SLOW", text) from None
        except StopAsyncIteration:
            raise CallError(grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST", NO_REQUEST) from None

    @contextlib.contextmanager
    def _reading(self, reading: _Reading) -> Iterator[_Reading]:
        self._readings.add(reading)
        try:
            yield reading
        finally:
            self._readings.discard(reading)
            reading.close()
