"""The same for a program without asyncio.

python blocking_work_queue.py [ENDPOINTS]
"""

from __future__ import annotations

import sys

from headrace_client.blocking import Client

QUEUE = "example-blocking"
TASKS = 100


def main(endpoints: str) -> None:
    """Run the example."""
    with Client.connect(endpoints) as client:
        client.topology.declare_queue(QUEUE)
        try:
            with client.publisher(routing_key=QUEUE) as publisher:
                publisher.publish(b"the first").wait()
                publisher.publish_many(b"task %d" % number for number in range(1, TASKS))
            done = 0
            with client.consumer(QUEUE, until_empty=True) as consumer:
                for delivery in consumer:
                    delivery.accept()
                    done += 1
            print(f"did {done} of {TASKS} tasks")
        finally:
            client.topology.delete_queue(QUEUE)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1")
