"""A job that takes a queue's messages in large batches; another one takes over what it holds.

python by_lease.py [ENDPOINTS]
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from headrace_client import Client, FencedError, LeaseGroup

QUEUE = "example-leases"
TTL_SECONDS = 60.0


async def read(group: LeaseGroup, lease: int) -> list[bytes]:
    """Read a lease, as often as needed."""
    return [each.body async for chunk in group.fetch(lease) for each in chunk.messages]


async def main(endpoints: str) -> None:
    """Run the example."""
    async with await Client.connect(endpoints) as client:
        await client.topology.declare_queue(QUEUE, arguments={"x-queue-type": "quorum"})
        async with client.publisher(routing_key=QUEUE) as publisher:
            for number in range(1000):
                await publisher.publish(b"%d" % number)

        first = client.lease_group(QUEUE, "job")
        state = await first.open(str(uuid4()), TTL_SECONDS)
        await first.lease(state.next_lease, 600, ttl_s=TTL_SECONDS)

        second = client.lease_group(QUEUE, "job")  # as when the first had died
        state = await second.open(str(uuid4()), TTL_SECONDS)
        found = [body for each in state.leases for body in await read(second, each.lease)]
        print(f"taken over: {len(found)} messages")
        try:
            await first.settle(state.next_lease - 1)
        except FencedError as error:
            print(f"the first one: {error}")

        number = state.next_lease
        while (await second.lease(number, 600, ttl_s=TTL_SECONDS)).messages:
            found += await read(second, number)
            number += 1
        settled = await second.settle(number - 1)
        print(f"{len(set(found))} different messages read, {settled.messages} settled")
        await client.topology.delete_queue(QUEUE)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"))
