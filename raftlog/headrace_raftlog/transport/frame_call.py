"""Frames over a gRPC call: the bytes of their connection, in messages, at the one port of gRPC."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc

from headrace_protos.raftlog.v1.transport_pb2 import FrameBytes, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportStub
from headrace_raftlog.ending import task_error
from headrace_raftlog.model.limits import FRAME_PIECE_BYTES_MIN, FRAME_WRITE_BYTES
from headrace_raftlog.transport.frame_connection import FrameConnection, enter
from headrace_raftlog.transport.security import Security

if TYPE_CHECKING:
    from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportAsyncStub

# Raised by reads and writes of a call that is over, whoever ended it.
BROKEN: Final = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)

LOW_PARTS: Final = 4  # writing is resumed at this part of what paused it, as with asyncio's own


class CallTransport(asyncio.Transport):
    """A transport of asyncio whose bytes travel as messages of one gRPC call.

    One message is under way to gRPC at a time, which takes it when HTTP/2's flow control lets it
    leave. The others wait here, and pause the protocol as a full socket would. A message is no
    longer than a piece, because the receiver sees nothing of one that is not complete.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        write: Callable[[FrameBytes], Awaitable[Any]],
        info: Mapping[str, Any] | None = None,
        piece_bytes: Callable[[], int] = lambda: FRAME_PIECE_BYTES_MIN,
    ) -> None:
        super().__init__(info)
        self._protocol = protocol
        self._send = write  # sends a message, and returns once gRPC has taken it
        self._piece_bytes = piece_bytes  # returns the bytes of a message, at most
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0  # those that gRPC has not taken are among them
        self._high = FRAME_WRITE_BYTES
        self._is_paused = False
        self._work = asyncio.Event()
        self._aborted = asyncio.Event()
        # carries the bytes, where nobody else waits for that; kept here, as the loop keeps no task
        self.carrying: asyncio.Task[None] | None = None
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Pause the protocol beyond `high` bytes that wait."""
        del low
        self._high = FRAME_WRITE_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return bytes that gRPC has not taken yet."""
        return self._waiting_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send bytes given in pieces, which stay uncopied until they leave."""
        if self._aborted.is_set():
            return
        for data in list_of_data:
            if data:
                self._waiting.append(bytes(data) if isinstance(data, bytearray) else data)
                self._waiting_bytes += len(data)
        self._work.set()
        if self._waiting_bytes > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        """Return whether nothing is sent or received any more."""
        return self._aborted.is_set()

    def close(self) -> None:
        """End the call; what waits is dropped."""
        self.abort()

    def abort(self) -> None:
        """End the call; what waits is dropped."""
        self._aborted.set()

    async def carry(self, messages: AsyncIterable[FrameBytes]) -> None:
        """Pass bytes between the call and the protocol until either ends."""
        parts = (self._read(messages), self._write(), self._aborted.wait())
        tasks = [asyncio.create_task(part) for part in parts]
        problem: Exception | None = None
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            problem = next((each for task in done if (each := _problem(task)) is not None), None)
        finally:
            self._aborted.set()
            self._waiting.clear()
            self._waiting_bytes = 0
            for task in tasks:
                task.cancel()
            self._protocol.connection_lost(problem)
            await asyncio.wait(tasks)

    async def _read(self, messages: AsyncIterable[FrameBytes]) -> None:
        async for message in messages:
            if self._aborted.is_set():
                return
            if message.data:
                self._protocol.data_received(message.data)

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                data = self._next()
                await self._send(FrameBytes(data=data))
                self._waiting_bytes -= len(data)
                if self._is_paused and self._waiting_bytes <= self._high // LOW_PARTS:
                    self._is_paused = False
                    self._protocol.resume_writing()

    def _next(self) -> bytes:
        """Return the bytes of the next message."""
        left = max(FRAME_PIECE_BYTES_MIN, self._piece_bytes())
        out: list[bytes | memoryview] = []
        while left and self._waiting:
            data = self._waiting.popleft()
            if len(data) > left:
                view = memoryview(data)
                self._waiting.appendleft(view[left:])
                data = view[:left]
            out.append(data)
            left -= len(data)
        return b"".join(out)


def _problem(task: asyncio.Task[Any]) -> Exception | None:
    """Return why a part of a call has ended; what is no fault of the call is told to the loop."""
    error = task_error(task)
    if error is None:
        return None
    if isinstance(error, grpc.aio.AioRpcError):
        return OSError(f"{error.code().name}: {error.details()}")
    if isinstance(error, BROKEN):
        return OSError(str(error))
    if not isinstance(error, Exception):
        raise error
    told = {"message": "a protocol over gRPC failed", "exception": error, "task": task}
    asyncio.get_running_loop().call_exception_handler(told)
    return error


async def call_frames(
    address: str, place: StreamPlace, security: Security, peer: int, on_lost: Callable[[], object]
) -> FrameConnection:
    """Open a stream to a peer over gRPC; arguments and errors are those of `open_frames`."""
    connection = FrameConnection(on_lost)
    channel = security.open(address, peer)
    stub: RaftTransportAsyncStub = RaftTransportStub(channel)
    call = stub.Frames()  # type: ignore[call-arg]  # without an iterator, it is written to
    transport = CallTransport(connection, call.write, piece_bytes=lambda: connection.piece_bytes)
    transport.carrying = asyncio.create_task(_carry(channel, transport, call))
    try:
        await enter(connection, place.ticket)
    except OSError as error:
        text = str(error) or "it does not answer"
        raise OSError(f"cannot send frames to {address} over gRPC: {text}") from error
    return connection


async def _carry(
    channel: grpc.aio.Channel, transport: CallTransport, messages: AsyncIterable[FrameBytes]
) -> None:
    """Carry bytes until either end has enough, and close the channel."""
    try:
        await transport.carry(messages)
    finally:
        await channel.close(None)
