"""The cluster that is backed up or restored into: the service Backup of whichever node answers."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from headrace_broker.cli.session.api_client import api_place
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import (
    EXIT_NOT_ALLOWED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    CommandError,
    Session,
)
from headrace_protos.broker.v1 import backup_pb2 as pb
from headrace_protos.broker.v1.backup_pb2_grpc import BackupStub

CALL_S: Final = 30.0  # seconds for the answer to a call; a replica may have to catch up
UNAVAILABLE_S_MAX: Final = 60.0  # seconds for which no node may answer: elections, restarts
SILENT_S_MAX: Final = (
    15.0  # seconds for which a point's node may not answer; it forgets in a restart
)
PAUSE_S: Final = 0.5  # between attempts

POINT_LOST: Final = "POINT_LOST"
UNKNOWN_POINT: Final = "UNKNOWN_POINT"
NODE_SILENT: Final = "NODE_SILENT"
_LOST: Final = (POINT_LOST, UNKNOWN_POINT)
_AGAIN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
)
_CODES: Final = {
    grpc.StatusCode.PERMISSION_DENIED: EXIT_NOT_ALLOWED,
    grpc.StatusCode.UNAUTHENTICATED: EXIT_NOT_ALLOWED,
    grpc.StatusCode.NOT_FOUND: EXIT_NOT_FOUND,
    grpc.StatusCode.UNAVAILABLE: EXIT_UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: EXIT_UNAVAILABLE,
}
_UNSPECIFIED: Final = ("0.0.0.0", "::", "")  # noqa: S104 - as others listen

A = TypeVar("A")


class PointLostError(Exception):
    """The point's node has lost it, and its reading cannot be continued."""


class QueueGoneError(Exception):
    """The queue was deleted."""


class Cluster:
    """Nodes that are tried in turn."""

    def __init__(
        self,
        addresses: list[str],  # HOST:PORT of their listeners for gRPC
        login: tuple[str, str],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        tls: ClientTls | None = None,  # how nodes are known, None in the clear
    ) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if tls is None:
            self._channels = [grpc.insecure_channel(each, options=options) for each in addresses]
        else:
            proof = tls.credentials()
            self._channels = [grpc.secure_channel(each, proof, options) for each in addresses]
        self._stubs = [BackupStub(channel) for channel in self._channels]
        basic = base64.b64encode(":".join(login).encode()).decode()
        self._metadata = (("authorization", f"Basic {basic}"),)
        self._clock = clock
        self._sleep = sleep
        self._turn = 0
        self._silent_since: float | None = None  # a point's node, as the others say

    def close(self) -> None:
        """End all connections."""
        for channel in self._channels:
            channel.close()

    # Points

    def open_point(self, vhost: str, queue: str, ttl_ms: int) -> pb.OpenPointResponse:
        """Open a point of a queue; QueueGoneError without one, CommandError where it cannot be."""
        request = pb.OpenPointRequest(vhost=vhost, queue=queue, ttl_ms=ttl_ms)
        opened: pb.OpenPointResponse = self.attempt(
            lambda stub, metadata: stub.Open(request, metadata=metadata, timeout=CALL_S)
        )
        return opened

    def keep_point(self, point: str, done_id: int, ttl_ms: int) -> None:
        """Put a point's end off; PointLostError where it is over, else CommandError."""
        request = pb.KeepPointRequest(point=point, done_id=done_id, ttl_ms=ttl_ms)
        self.attempt(lambda stub, metadata: stub.Keep(request, metadata=metadata, timeout=CALL_S))

    def close_point(self, point: str) -> None:
        """Give a point up; one that is over is no error."""
        request = pb.ClosePointRequest(point=point)
        try:
            self.attempt(
                lambda stub, metadata: stub.Close(request, metadata=metadata, timeout=CALL_S)
            )
        except (PointLostError, CommandError):
            return  # it ends by itself

    def read_point(
        self, point: str, after_id: int, chunk_bytes: int
    ) -> Iterator[pb.ReadPointResponse]:
        """Return chunks of a point, to its end; reading goes on where it was cut off.

        Raises PointLostError: it is over; CommandError: no node serves it for UNAVAILABLE_S_MAX.
        """
        deadline = self.deadline()
        while True:
            request = pb.ReadPointRequest(point=point, after_id=after_id, chunk_octets=chunk_bytes)
            stub = self._stubs[self._turn % len(self._stubs)]
            call = stub.Read(request, metadata=self._metadata)
            try:
                for chunk in call:
                    yield chunk
                    after_id = chunk.last_id
                    deadline = self.deadline()
            except grpc.RpcError as error:
                self._judge(error, deadline)
            else:
                return
            finally:
                call.cancel()  # type: ignore[no-untyped-call]

    # Restoring

    def restore(self, requests: Iterator[pb.RestoreRequest]) -> Any:
        """Begin a stream that puts messages into a queue, at the node whose turn it is."""
        stub = self._stubs[self._turn % len(self._stubs)]
        return stub.Restore(requests, metadata=self._metadata)

    # Errors

    def attempt(self, call: Callable[[BackupStub, Any], A]) -> A:
        """Make a call that may be repeated, until a node has answered it."""
        deadline = self.deadline()
        while True:
            try:
                return call(self._stubs[self._turn % len(self._stubs)], self._metadata)
            except grpc.RpcError as error:
                self._judge(error, deadline)

    def again(self, error: grpc.RpcError, deadline: float) -> None:
        """Turn to the next node after a failure that may pass; raises as `attempt`."""
        self._judge(error, deadline)

    def deadline(self) -> float:
        """Return until when failures that may pass are waited out, from now on."""
        self._silent_since = None
        return self._clock() + UNAVAILABLE_S_MAX

    def _judge(self, error: grpc.RpcError, deadline: float) -> None:
        """Wait a little and turn to the next node, unless it is no use.

        Raises PointLostError: it is over; QueueGoneError; CommandError: refused, or out of time.
        """
        code, text = error.code(), error.details()
        reason = reason_of(error)
        if reason in _LOST:
            raise PointLostError(text) from None
        now = self._clock()
        if reason == NODE_SILENT and self._silent_since is None:
            self._silent_since = now
        silent = self._silent_since is not None and now - self._silent_since >= SILENT_S_MAX
        if silent:
            raise PointLostError(f"its node has not answered for {SILENT_S_MAX:.0f} s") from None
        late = now >= deadline
        if reason == "NOT_FOUND":
            raise QueueGoneError(text) from None
        again = code in _AGAIN or reason in ("TOO_MANY_READS", "TOO_MANY_POINTS")
        if not again or late:
            raise CommandError(f"{text}", _CODES.get(code, EXIT_REFUSED)) from None
        self._turn += 1
        self._sleep(PAUSE_S)


def reason_of(error: grpc.RpcError) -> str:
    """Return the reason in the details of an error, "" where it has none."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # a failed call is both
    info = ErrorInfo()
    if status is not None and status.details and status.details[0].Unpack(info):
        return str(info.reason)
    return ""


def open_cluster(session: Session, given: str | None) -> Cluster:
    """Return the nodes that are named (HOST:PORT, joined by commas), or that the API tells of.

    Raises CommandError: no node serves gRPC, or the API does not answer.
    """
    addresses = [each.strip() for each in given.split(",")] if given else _listeners(session)
    return Cluster(addresses, session.login, tls=session.tls)


def _listeners(session: Session) -> list[str]:
    """Return where the nodes listen for gRPC, those first that surely can be reached from here."""
    found: list[str] = []
    wanted = "grpc" if session.tls is None else "grpc/ssl"
    listeners = session.get("/api/overview").get("listeners", [])
    api_host = api_place(session.address).host
    for each in listeners:
        if each["protocol"] == wanted:
            host = api_host if each["ip_address"] in _UNSPECIFIED else each["ip_address"]
            found.append(f"[{host}]:{each['port']}" if ":" in host else f"{host}:{each['port']}")
    if not found:
        over = "" if session.tls is None else " over TLS"
        text = f"no node says where it listens for gRPC{over}: name one with --grpc HOST:PORT"
        raise CommandError(text)
    return list(dict.fromkeys(found))
