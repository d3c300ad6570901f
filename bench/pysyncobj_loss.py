"""PySyncObj loses writes that it has acknowledged: one leader crashes, nothing else goes wrong.

    python bench/pysyncobj_loss.py [--seeds 0:100] [--seed N] [--delay-ms 250]

Three real `SyncObj` nodes with PySyncObj's default options and journals on disk, driven through its
public interface: `doTick`, a `Transport` of ours, a `@replicated` method and its callback. Time is
simulated, and the delay of each message is drawn from the seed, so that a seed is one run.

What happens in a run: a client at the leader writes commands of 20 kB. At some time the leader
crashes; what it has sent and what was not yet delivered is lost with it. The two survivors elect
one of them, which takes another write. Later the crashed node starts again from its journal.

What does not happen: no message between living nodes is lost, repeated or overtaken, no disk
loses a byte, no clock jumps, and there is one crash. A write counts as acknowledged when its
callback was called with FAIL_REASON.SUCCESS.

A write is lost when it was acknowledged and none of the nodes has it in the end. It goes like this:

1. The leader sends entries 10 to 30 in several messages, and the next round a tenth of a second
   later. The answer to the first message, "I have 13", moves the leader's next index for that
   follower back to 14, so that the round sends 14 to 30 once more.
2. The follower has 30 and says so: 30 is on two of three nodes, committed, applied, acknowledged.
3. The first message of the second round arrives: "behind 13 comes 14 to 17". The follower removes
   everything behind 13, though it agrees, and adds 14 to 17. The rest is still under way.
4. The leader crashes. Nobody has 18 to 30 but its own journal, and the next leader overwrites that.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

COMMAND_BYTES: Final = 20_000
TICK_SECONDS: Final = 0.05  # PySyncObj's default of autoTickPeriod
DELAY_MS_MAX: Final = 250  # of one message: a slow link, or a receiver that is busy
WRITE_SECONDS_MAX: Final = 0.02  # between two writes
CRASH_SECONDS: Final = (1.0, 4.0)  # after the first acknowledgement
AFTER_SECONDS: Final = 15.0  # for the survivors, and again with the crashed node
START_SECONDS_MAX: Final = 60.0
SUCCESSORS_NUMBER: Final = -1


class NumberedNode(Node):  # type: ignore[misc]  # the package has no types
    """A node whose place in a set does not depend on PYTHONHASHSEED."""

    def __hash__(self) -> int:
        return int(self.id)


class Replica(SyncObj):  # type: ignore[misc]
    """A replicated list of numbers, each with an unused payload."""

    def __init__(self, own: Node, others: list[Node], conf: SyncObjConf, link: Transport) -> None:
        self.numbers: list[int] = []
        self._longest = 0
        super().__init__(own, others, conf, transport=link)

    @replicated  # type: ignore[untyped-decorator]
    def write(self, number: int, payload: str) -> None:
        """Append a number."""
        self.numbers.append(number)

    def work(self) -> None:
        """Do what there is to do now."""
        self.doTick(0)
        self._longest = max(self._longest, self._SyncObj__raftLog[-1][1])

    def describe(self) -> str:
        """Return the state of this node in a line; only this looks inside of it."""
        log = self._SyncObj__raftLog
        return (
            f"term {self.raftCurrentTerm}, commit {self.raftCommitIndex}, "
            f"log {log[0][1]}-{log[-1][1]} (it had up to {self._longest}), "
            f"applied {ranges(self.numbers)}"
        )


class Link(Transport):  # type: ignore[misc]
    """Outgoing link of a node: messages arrive later, those to one node in order."""

    def __init__(self, world: World, own: int) -> None:
        super().__init__(None, None, [])
        self._world = world
        self._own = own

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        """Send a message; False while the nodes are not connected."""
        return self._world.send(self._own, int(node.id), message)

    def receive(self, source: Node, message: dict[str, Any]) -> None:
        """Hand a message over that arrived."""
        self._onMessageReceived(source, message)

    def connected(self, peer: Node, up: bool) -> None:
        """Tell the node that a connection was made or lost."""
        (self._onNodeConnected if up else self._onNodeDisconnected)(peer)


class World:
    """Clock, network and nodes of one run.

    Args:
        seed: decides everything that is left to chance.
        delay_s_max: a message takes up to so long.
        directory: for the journals.
    """

    def __init__(self, seed: int, delay_s_max: float, directory: Path) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.alive: dict[int, Replica] = {}
        self._delay_s_max = delay_s_max
        self._directory = directory
        self._links: dict[int, Link] = {}
        self._nodes = [NumberedNode(str(number)) for number in range(3)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._arrival: dict[tuple[int, int], float] = {}
        self._life = [0, 0, 0]
        pysyncobj.syncobj.monotonicTime = lambda: self.now
        random.seed(seed)  # PySyncObj draws its election timeouts from there

    def start(self, number: int) -> None:
        """Start a node with whatever its journal holds, connected to all that live."""
        conf = SyncObjConf(autoTick=False, journalFile=str(self._directory / f"journal{number}"))
        link = Link(self, number)
        others = [node for node in self._nodes if int(node.id) != number]
        self._links[number] = link
        self.alive[number] = Replica(self._nodes[number], others, conf, link)
        for peer in self.alive:
            if peer != number:
                self._links[peer].connected(self._nodes[number], True)
                link.connected(self._nodes[peer], True)
        self._tick(number, self._life[number])

    def crash(self, number: int) -> None:
        """End a node; undelivered messages from it and to it are lost."""
        del self.alive[number]
        self._life[number] += 1
        for peer in self.alive:
            self._links[peer].connected(self._nodes[number], False)

    def send(self, source: int, target: int, message: dict[str, Any]) -> bool:
        """Deliver a message at some later time, not before those sent earlier."""
        if target not in self.alive:
            return False
        pair = (source, target)
        delay = self.random.uniform(0.0005, self._delay_s_max)
        at = max(self._arrival.get(pair, 0.0), self.now + delay)
        self._arrival[pair] = at
        lives = (self._life[source], self._life[target])

        def arrive() -> None:
            if lives == (self._life[source], self._life[target]):
                self._links[target].receive(self._nodes[source], message)
                self.alive[target].work()

        self.at(at, arrive)
        return True

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Schedule a call at a time."""
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self, until: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until then, or until it is enough."""
        while self._events and self._events[0][0] <= until and not enough():
            self.now, _, what = heapq.heappop(self._events)
            what()
        if not enough():
            self.now = until

    def leader(self) -> int | None:
        """Return the newest leader among those that live."""
        leads = [n for n, node in self.alive.items() if node.getStatus()["state"] == 2]
        return max(leads, key=lambda n: self.alive[n].raftCurrentTerm, default=None)

    def _tick(self, number: int, life: int) -> None:
        if life == self._life[number]:
            self.alive[number].work()
            self.at(self.now + TICK_SECONDS, lambda: self._tick(number, life))


class Client:
    """Writes numbers at one node, again and again."""

    def __init__(self, world: World, node: int, first: int) -> None:
        self.acknowledged: list[int] = []
        self.stopped = False
        self._world = world
        self._replica = world.alive[node]
        self._payload = "x" * COMMAND_BYTES
        self._next = first

    def write(self) -> None:
        """Write the next number, and go on a little later."""
        if self.stopped:
            return
        number = self._next
        self._next += 1

        def done(result: object, error: int) -> None:
            if error == FAIL_REASON.SUCCESS:
                self.acknowledged.append(number)

        self._replica.write(number, self._payload, callback=done)
        pause = self._world.random.uniform(0, WRITE_SECONDS_MAX)
        self._world.at(self._world.now + pause, self.write)


class Run:
    """One seed from beginning to end.

    Attributes:
        story: what happened, line by line.
        lost: numbers acknowledged that no node has in the end.
    """

    def __init__(self, seed: int, delay_s_max: float, directory: Path) -> None:
        self.story: list[str] = []
        self.lost: list[int] = []
        self._world = World(seed, delay_s_max, directory)

    def run(self) -> None:
        """Run it."""
        world = self._world
        for number in range(3):
            world.start(number)
        world.run(START_SECONDS_MAX, lambda: world.leader() is not None)
        leader = world.leader()
        assert leader is not None, "no leader in a quiet cluster"
        client = Client(world, leader, 0)
        client.write()
        world.run(world.now + START_SECONDS_MAX, lambda: bool(client.acknowledged))
        world.run(world.now + world.random.uniform(*CRASH_SECONDS))
        self._note(f"acknowledged: {ranges(client.acknowledged)}; node {leader} leads and crashes")
        client.stopped = True
        world.crash(leader)
        world.run(world.now + AFTER_SECONDS)
        self._note("the survivors went on")
        self._write_again()
        self._judge(client, "before the crashed node is back")
        world.start(leader)
        world.run(world.now + AFTER_SECONDS)
        self._note(f"node {leader} is back, from its journal")
        self._judge(client, "in the end")

    def _write_again(self) -> None:
        """Prove that the survivors serve."""
        world = self._world
        successor = world.leader()
        assert successor is not None, "no leader after the crash"
        client = Client(world, successor, SUCCESSORS_NUMBER)
        client.write()
        client.stopped = True
        world.run(world.now + START_SECONDS_MAX, lambda: bool(client.acknowledged))
        assert client.acknowledged, "the survivors do not serve"
        world.run(world.now + 1)
        self._note(f"node {successor} leads now and took another write")

    def _judge(self, client: Client, when: str) -> None:
        there = set().union(*(node.numbers for node in self._world.alive.values()))
        self.lost = [number for number in client.acknowledged if number not in there]
        self.story.append(f"{when}, lost though acknowledged: {ranges(self.lost) or 'none'}")

    def _note(self, what: str) -> None:
        world = self._world
        self.story.append(f"{world.now:7.3f} s  {what}")
        for number, node in sorted(world.alive.items()):
            self.story.append(f"           node {number}: {node.describe()}")


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers with neighbours drawn together, such as `0-4, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def run_seed(seed: int, delay_s_max: float) -> Run:
    """Run one seed with journals of its own."""
    with tempfile.TemporaryDirectory(prefix="pysyncobj-loss-") as directory:
        run = Run(seed, delay_s_max, Path(directory))
        run.run()
        return run


def main() -> int:
    """Run many seeds and tell the story of the first that loses a write, or of a given one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="first:behind the last")
    parser.add_argument("--seed", type=int, help="only this one, with its story")
    parser.add_argument("--delay-ms", type=float, default=DELAY_MS_MAX, help="of a message")
    options = parser.parse_args()
    logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
    first, behind = (int(part) for part in options.seeds.split(":"))
    seeds = range(first, behind) if options.seed is None else [options.seed]
    losing: list[int] = []
    for seed in seeds:
        run = run_seed(seed, options.delay_ms / 1000)
        gc.collect()  # nodes are cyclic garbage with open files; `destroy` would wait for the disk
        if run.lost:
            losing.append(seed)
        if options.seed is not None or (run.lost and len(losing) == 1):
            print(f"seed {seed}", *run.story, sep="\n")
    print(f"PySyncObj {version('pysyncobj')}: {len(losing)} of {len(seeds)} seeds lost writes that")
    print(f"were acknowledged: {ranges(losing) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
