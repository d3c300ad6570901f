"""A job that reads a queue by leases over gRPC, and tries the nodes in turn."""

from __future__ import annotations

import base64
import time
from types import TracebackType
from typing import Any, Final

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from headrace_broker.gateways.grpc.pb import lease_pb2 as pb
from headrace_broker.gateways.grpc.pb.lease_pb2_grpc import LeaseStub

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


class LeaseDriver:
    """Works for one group.

    Args:
        addresses: of the nodes, HOST:PORT for gRPC.
        queue: in vhost "/".
        group: its name.
    """

    def __init__(self, addresses: list[str], queue: str, group: str = "job") -> None:
        self._channels = [grpc.insecure_channel(address) for address in addresses]
        self._turn = 0
        self.name = pb.GroupName(vhost="/", queue=queue, group=group)
        self.epoch = 0

    def __enter__(self) -> LeaseDriver:
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
        """Make a call, again while nobody can answer.

        Raises:
            RefusedError: the broker can, and refuses it.
        """
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            stub = LeaseStub(self._channels[self._turn % len(self._channels)])
            try:
                answer = getattr(stub, method)(request, metadata=LOG_IN, timeout=CALL_SECONDS)
                return list(answer) if method == "Fetch" else answer
            except grpc.RpcError as error:
                unavailable = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if error.code() not in unavailable or time.monotonic() > deadline:
                    raise RefusedError(reason_of(error) or str(error)) from error
                self._turn += 1
                time.sleep(0.2)

    def open(self, request_id: str, ttl_ms: int) -> pb.LeaseGroup:
        """Open the group, and work for it from now on."""
        request = pb.OpenGroupRequest(name=self.name, request_id=request_id, ttl_ms=ttl_ms)
        group: pb.LeaseGroup = self.call("OpenGroup", request).group
        self.epoch = group.epoch
        return group

    def lease(self, number: int, most: int, ttl_ms: int) -> pb.LeaseResponse:
        """Take messages."""
        request = pb.LeaseRequest(
            name=self.name, epoch=self.epoch, lease=number, messages_max=most, ttl_ms=ttl_ms
        )
        answer: pb.LeaseResponse = self.call("Lease", request)
        return answer

    def fetch(self, number: int) -> list[bytes]:
        """Read the bodies of a lease."""
        request = pb.FetchLeaseRequest(
            name=self.name, epoch=self.epoch, lease=number, chunk_octets=64 << 10
        )
        return [row.body for chunk in self.call("Fetch", request) for row in chunk.rows]

    def settle(self, up_to: int) -> pb.SettleLeasesResponse:
        """Accept what was read."""
        request = pb.SettleLeasesRequest(name=self.name, epoch=self.epoch, up_to=up_to)
        answer: pb.SettleLeasesResponse = self.call("Settle", request)
        return answer
