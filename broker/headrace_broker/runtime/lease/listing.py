"""The groups that lease messages, for people: of all queues, or of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace_broker.core.queue.state.lease_effect import HELD, GroupInfo
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import NOT_FOUND, AmqpError
from headrace_broker.model.status import LeaseGroupStatus
from headrace_broker.runtime.lease.group_commands import amqp_errors
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.led_rows import LedRows
from headrace_broker.runtime.rpc.question import LeaseGroups
from headrace_broker.runtime.security import audit


class LeaseListing:
    """Lists groups on all nodes, and closes them."""

    def __init__(
        self,
        names: Mapping[int, str],
        hosts: Mapping[int, QueueHost],
        rpc: Rpc,
        leases: LeaseClient,
        locate: Callable[[Queue], int],
    ) -> None:
        self._names = names  # of all nodes by id; they may change
        self._leases = leases  # asks single queues
        self._locate = locate  # where a queue's leader is, 0 for unknown
        self._all = LedRows(rpc, names, hosts, (LeaseGroups(), LeaseGroupStatus), _rows)

    async def everyone(self) -> tuple[list[LeaseGroupStatus], tuple[str, ...]]:
        """Return the groups of all queues, and the names of the nodes that did not answer."""
        return await self._all.everywhere()

    async def of(self, queue: Queue) -> list[LeaseGroupStatus]:
        """Return the groups of a queue; AmqpError NOT_FOUND, or INTERNAL_ERROR leaderless."""
        with amqp_errors():
            groups = await self._leases.describe(queue)
        node = self._names.get(self._locate(queue), "")
        return [status_of(queue, group, node) for group in groups]

    async def close(self, queue: Queue, name: str) -> int:
        """Close a group of a queue; return how many messages went back.

        Raises AmqpError: NOT_FOUND without group or queue, INTERNAL_ERROR without leader.
        """
        if name not in [group.name for group in await self.of(queue)]:
            text = f"no group '{name}' of queue '{queue.name}' in vhost '{queue.vhost}'"
            raise AmqpError(NOT_FOUND, text)
        with amqp_errors():
            count = int((await self._leases.close_group(queue, name.encode(), 0)).count)
        audit.record("close_lease_group", name, vhost=queue.vhost, queue=queue.name, messages=count)
        return count


def _rows(host: QueueHost, node: str) -> Iterator[LeaseGroupStatus]:
    for group in host.machine.lease_groups():
        yield status_of(host.queue, group, node)


def status_of(queue: Queue, group: GroupInfo, node: str) -> LeaseGroupStatus:
    """Return a group for people."""
    held = [lease for lease in group.leases if lease.state == HELD]
    return LeaseGroupStatus(
        vhost=queue.vhost,
        queue=queue.name,
        name=group.name.decode("utf-8", "replace"),
        node=node,
        epoch=int(group.epoch),
        next_lease=int(group.next_number),
        settled=int(group.settled),
        deadline_ms=int(group.deadline_ms),
        leases=len(held),
        messages=sum(int(lease.count) for lease in held),
        byte_count=sum(int(lease.byte_count) for lease in held),
    )
