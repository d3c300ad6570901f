"""A job that may be run again: each of its lines is in the queue once, whatever happened before.

python exactly_once.py [ENDPOINTS [DIES_AFTER]]
"""

from __future__ import annotations

import asyncio
import os
import sys

from headrace_client import Client

QUEUE = "example-once"
LINES = [b"line %d" % number for number in range(1, 101)]


async def job(client: Client, dies_after: int | None) -> None:
    """Publish all lines; a line's number is the same in every run, so queues know it again."""
    async with client.publisher(routing_key=QUEUE, publisher_id="import-2026") as publisher:
        for number, line in enumerate(LINES, 1):
            confirm = await publisher.publish(line, sequence=number)
            if number == dies_after:
                await confirm
                os._exit(3)  # as if it were killed


async def main(endpoints: str, dies_after: int | None = None) -> None:
    """Run the example."""
    async with await Client.connect(endpoints) as client:
        await client.topology.declare_queue(QUEUE)
        await job(client, dies_after)
        found = []
        async with client.consumer(QUEUE, until_empty=True) as consumer:
            async for delivery in consumer:
                found.append(delivery.body)
                delivery.accept()
        print(f"{len(found)} messages, {len(set(found))} different ones")
        await client.topology.delete_queue(QUEUE)


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1",
            int(sys.argv[2]) if len(sys.argv) > 2 else None,
        )
    )
