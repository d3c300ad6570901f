"""A job that reads a queue by leases over gRPC, and tries the nodes in turn."""

from __future__ import annotations

from e2e.harness.node_driver import NodeDriver

from headrace_protos.broker.v1 import lease_pb2 as pb
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseStub


class LeaseDriver(NodeDriver):
    """Works for one group.

    Args:
        addresses: of the nodes, HOST:PORT for gRPC.
        queue: in vhost "/".
        group: its name.
    """

    def __init__(self, addresses: list[str], queue: str, group: str = "job") -> None:
        super().__init__(addresses, LeaseStub, "Fetch")
        self.name = pb.GroupName(vhost="/", queue=queue, group=group)
        self.epoch = 0

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
        """Accept the read messages."""
        request = pb.SettleLeasesRequest(name=self.name, epoch=self.epoch, up_to=up_to)
        answer: pb.SettleLeasesResponse = self.call("Settle", request)
        return answer
