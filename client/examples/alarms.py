"""Says how it stands with memory and disk, then each change; N changes, or for ever.

python alarms.py [ENDPOINTS [N]]
"""

from __future__ import annotations

import asyncio
import sys

from headrace_client import Client


async def main(endpoints: str, count: int | None = None) -> None:
    """Run the example."""
    async with await Client.connect(endpoints) as client, client.watch_alarms() as watch:
        for alarm in await watch.snapshot():
            print(f"{alarm.node} {alarm.kind} {alarm.stage}: {alarm.reason}")
        print(f"{len(watch.current)} alarms are on", flush=True)
        while count != 0:
            alarm = await anext(watch)
            print(f"{alarm.node} {alarm.kind} {alarm.stage}: {alarm.reason}", flush=True)
            count = None if count is None else count - 1


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1",
            int(sys.argv[2]) if len(sys.argv) > 2 else None,
        )
    )
