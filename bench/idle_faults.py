"""Cost of idle replicated queues while a link is cut, a node is down, slow, or all restart.

PYTHONPATH=. python bench/idle_faults.py [--queues 1000] [--seconds 20] [--watch 300] [--skip PHASE]

Three nodes in network namespaces of their own, which takes root or `unshare --user
--map-root-user --net`. For each phase the figures of each node are told: leaderships, Raft messages
and frames sent a second, elections and leaders that its replicas came to know, processor time.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pika
from e2e.chaos.cluster import AMQP_PORT, ChaosCluster, ChaosNode
from replication.figures import processor_seconds

SETTLE_SECONDS: Final = 15  # until groups have fallen silent
SLOW_KBIT: Final = 256  # of the link of a slow node, each way
LOOK_SECONDS: Final = 5.0  # between two looks at who leads
PHASES: Final = ("cut", "kill", "restart", "slow")
COUNTED: Final = (
    "headrace_raft_groups_led",
    "headrace_raft_groups_leaderless",
    "headrace_raft_messages_sent_total",
    "headrace_raft_frames_sent_total",
    "headrace_raft_elections_total",
    "headrace_raft_leader_changes_total",
)


class Figures(NamedTuple):
    """One reading of a node."""

    seconds: float
    processor: float
    counts: dict[str, float]


def read(node: ChaosNode) -> Figures:
    """Read metrics and processor time of a node that runs."""
    login = base64.b64encode(b"guest:guest").decode()
    host, _, port = node.local.http.rpartition(":")
    with node.namespace.entered():
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.connect()
    connection.request("GET", "/metrics", headers={"Authorization": f"Basic {login}"})
    text = connection.getresponse().read().decode()
    connection.close()
    counts = dict.fromkeys(COUNTED, 0.0)
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name in counts:
            counts[name] += float(value)
    return Figures(time.monotonic(), processor_seconds(node.pid), counts)


def tell(cluster: ChaosCluster, what: str, seconds: float) -> None:
    """Print what each node that runs did in the next seconds."""
    nodes = [node for node in cluster.nodes if node.runs]
    before = [read(node) for node in nodes]
    time.sleep(seconds)
    print(f"{what}, over {seconds:g} s:", flush=True)
    for node, old in zip(nodes, before, strict=True):
        new = read(node)
        took = new.seconds - old.seconds
        led, leaderless, messages, frames, elections, changes = (
            (old.counts[name], new.counts[name]) for name in COUNTED
        )
        print(
            f"  {node.name}: leads {led[1]:.0f}, leaderless {leaderless[1]:.0f}, "
            f"{(messages[1] - messages[0]) / took:.1f} messages/s, "
            f"{(frames[1] - frames[0]) / took:.1f} frames/s, "
            f"elections +{elections[1] - elections[0]:.0f}, "
            f"leaders +{changes[1] - changes[0]:.0f}, "
            f"processor {100 * (new.processor - old.processor) / took:.1f} %",
            flush=True,
        )


def declare(node: ChaosNode, numbers: range) -> None:
    """Declare queues that the node leads then."""
    with node.namespace.entered():
        place = pika.ConnectionParameters("127.0.0.1", AMQP_PORT, blocked_connection_timeout=600)
        connection = pika.BlockingConnection(place)
    channel = connection.channel()
    for number in numbers:
        channel.queue_declare(f"idle-{number}", durable=True)
    connection.close()


def watch_balance(cluster: ChaosCluster, seconds: float) -> None:
    """Print how leaderships are spread until that stands still for a while, or time is over."""
    end = time.monotonic() + seconds
    told = ""
    while time.monotonic() < end:
        led = [int(read(node).counts[COUNTED[0]]) for node in cluster.nodes if node.runs]
        states: list[dict[str, Any]] = []
        for node in cluster.nodes:
            answer = node.get("/api/rebalance/queues") if node.runs else None
            if answer and answer["automatic"]["state"] != "elsewhere":
                states.append(answer["automatic"])
        said = ", ".join(f"{s['state']} ({s['handed_over']} / {s['failed']})" for s in states)
        line = f"led {led}, {said or 'nobody decides'}"
        if line != told:
            print(f"  {time.monotonic() - end + seconds:.0f} s: {line}", flush=True)
            told = line
        time.sleep(LOOK_SECONDS)


def run(cluster: ChaosCluster, queues: int, seconds: float, watch: float, skip: list[str]) -> None:
    """Go through all phases."""
    started = time.monotonic()
    for number, node in enumerate(cluster.nodes):
        declare(node, range(number * queues // 3, (number + 1) * queues // 3))
    print(f"{queues} queues declared in {time.monotonic() - started:.0f} s", flush=True)
    time.sleep(SETTLE_SECONDS)
    tell(cluster, "all idle", seconds)
    if "cut" not in skip:
        cluster.network.cut(1, 2)
        cluster.network.cut(2, 1)
        tell(cluster, "link between n1 and n2 cut just now", seconds)
        tell(cluster, "link between n1 and n2 cut", 3 * seconds)
        cluster.network.heal_all()
        tell(cluster, "link healed just now", seconds)
        tell(cluster, "link healed", seconds)
    if "kill" not in skip:
        cluster.node(3).kill()
        tell(cluster, "n3 killed just now", seconds)
        tell(cluster, "n3 dead", seconds)
        cluster.start()
        watch_balance(cluster, watch)
        tell(cluster, "n3 back", seconds)
    if "restart" not in skip:
        cluster.stop()
        cluster.start()
        print("all nodes restarted:", flush=True)
        watch_balance(cluster, watch)
        tell(cluster, "all restarted", seconds)
    if "slow" not in skip:
        cluster.network.throttle(3, SLOW_KBIT)
        print(f"link of n3 has {SLOW_KBIT} kbit/s, and n2 is killed:", flush=True)
        cluster.node(2).kill()
        time.sleep(seconds)
        cluster.start()
        watch_balance(cluster, watch)
        tell(cluster, "n2 back, n3 slow", seconds)


def main() -> int:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--watch", type=float, default=300)
    parser.add_argument("--skip", choices=PHASES, action="append", default=[])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-idle-") as work,
        ChaosCluster(Path(work) / "data", 3) as cluster,
    ):
        run(cluster, options.queues, options.seconds, options.watch, options.skip)
    return 0


if __name__ == "__main__":
    sys.exit(main())
