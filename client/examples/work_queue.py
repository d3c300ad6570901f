"""A work queue: publish with confirms, consume, and try again what fails.

python work_queue.py [ENDPOINTS]
"""

from __future__ import annotations

import asyncio
import sys

from headrace_client import Client, Properties

QUEUE = "example-work"
TASKS = 100


async def publish(client: Client) -> None:
    """Publish tasks; to await `publish` is to wait while the broker is behind."""
    async with client.publisher(routing_key=QUEUE, name="work-publisher") as publisher:
        confirms = [
            await publisher.publish(
                b"task %d" % number, properties=Properties(message_id=str(number))
            )
            for number in range(TASKS)
        ]
        for confirm in confirms:
            await confirm  # it is on the disks of a majority now


async def work(client: Client) -> int:
    """Do what there is to do, and return how much that was."""
    done = 0
    async with client.consumer(QUEUE, prefetch=20, until_empty=True) as consumer:
        async for delivery in consumer:
            if int(delivery.properties.message_id or 0) % 10 == 3 and not delivery.delivery_count:
                delivery.modify(failed=True)  # once more, and not for ever: there is a limit
                continue
            delivery.accept()
            done += 1
    return done


async def main(endpoints: str) -> None:
    """Run the example."""
    async with await Client.connect(endpoints) as client:
        await client.topology.declare_queue(QUEUE, arguments={"x-delivery-limit": 3})
        try:
            await publish(client)
            print(f"did {await work(client)} of {TASKS} tasks")
        finally:
            await client.topology.delete_queue(QUEUE)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"))
