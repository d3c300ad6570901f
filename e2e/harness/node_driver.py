"""Calls of one gRPC service, of whichever node answers."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

CALL_SECONDS: Final = 30.0
GIVE_UP_SECONDS: Final = 60.0  # elections on a loaded machine
LOG_IN: Final = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)


class RefusedError(Exception):
    """The broker refuses a call for good; the text is the reason of its ErrorInfo."""


def reason_of(error: grpc.RpcError) -> str:
    """Return the reason in the details of an error, "" where it has none."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # a failed call is both
    info = ErrorInfo()
    if status is not None and status.details and status.details[0].Unpack(info):
        return str(info.reason)
    return ""


class NodeDriver:
    """Tries the nodes in turn.

    Args:
        addresses: of the nodes, HOST:PORT for gRPC.
        stub: of the service.
        streamed: its method that answers with a stream.
    """

    def __init__(
        self, addresses: list[str], stub: Callable[[grpc.Channel], Any], streamed: str
    ) -> None:
        self._channels = [grpc.insecure_channel(address) for address in addresses]
        self._turn = 0
        self._stub = stub
        self._streamed = streamed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for channel in self._channels:
            channel.close()

    def call(self, method: str, request: Any) -> Any:
        """Make a call, again while no node can answer.

        Raises:
            RefusedError: the broker can, and refuses it.
        """
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            stub = self._stub(self._channels[self._turn % len(self._channels)])
            try:
                answer = getattr(stub, method)(request, metadata=LOG_IN, timeout=CALL_SECONDS)
                return list(answer) if method == self._streamed else answer
            except grpc.RpcError as error:
                unavailable = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if error.code() not in unavailable or time.monotonic() > deadline:
                    raise RefusedError(reason_of(error) or str(error)) from error
                self._turn += 1
                time.sleep(0.2)
