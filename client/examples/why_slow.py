"""Back pressure: a queue that nobody consumes, a publisher that is held, and why.

python why_slow.py [ENDPOINTS]
"""

from __future__ import annotations

import asyncio
import sys

from headrace_client import Client, HeldBackError, Publisher

QUEUE = "example-slow"
WINDOW = 50  # messages that are published before one of them is confirmed


async def main(endpoints: str) -> None:
    """Run the example."""
    async with await Client.connect(endpoints) as client:
        # The queue defers confirms from 10 messages on, until 5 are left.
        marks = {"x-high-watermark": 10, "x-low-watermark": 5}
        await client.topology.declare_queue(QUEUE, arguments=marks)
        publisher = client.publisher(
            routing_key=QUEUE, name="slow-publisher", unconfirmed_max=WINDOW
        )
        await publisher.open()
        try:
            await fill(client, publisher)
            async with client.consumer(QUEUE) as consumer:  # now somebody consumes
                while publisher.unconfirmed_count:
                    delivery = await consumer.next()
                    assert delivery is not None, "messages are waiting"
                    await delivery.accept()
            await publisher.close()
            print("all is confirmed")
        finally:
            await client.topology.delete_queue(QUEUE)


async def fill(client: Client, publisher: Publisher) -> None:
    """Publish until the broker holds it back, and ask why."""
    count = 0
    try:
        while True:
            await publisher.publish(b"x", timeout_s=3)
            count += 1
    except HeldBackError as error:
        print(f"held back after {count} messages: {error}")
    print((await client.why(queue=QUEUE)).sentence)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"))
