"""Planner of moves of replicas and leaders: a view of the cluster in, steps out.

Nothing here counts on a step having been done when the next is taken: each leaves its queue with a
majority of its replicas on nodes that are up now, whatever becomes of the other steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace_broker.catalog.placement import NO_PLACES, Place, load, shares, together
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.limits import (
    BALANCE_APART_MIN,
    BALANCE_APART_PERCENT,
    BALANCE_BUSY_AT_ONCE,
    BALANCE_IDLE_AT_ONCE,
    BALANCE_IDLE_PERCENT,
    REPLICAS_MAX,
)

GROW_ALL: Final = "all"
GROW_EVEN: Final = "even"  # only queues with an even number of replicas


class Step(NamedTuple):
    """A change of a queue's replicas; a problem where it must not be made."""

    queue: Queue
    add: tuple[int, ...] = ()  # node ids that get a replica
    remove: tuple[int, ...] = ()  # node ids whose replicas go once those have everything
    problem: str = ""  # why not, "" for a step to take


class Led(NamedTuple):
    """A queue and who leads it."""

    group: int  # incarnation id
    leader: int  # node id
    candidates: tuple[int, ...]  # node ids that could lead it as well


class Movable(NamedTuple):
    """A queue's leader as the automatic balance of leaders sees it."""

    led: Led  # the queue
    busy: bool = False  # it has traffic
    stays: bool = False  # it is not to be handed over now; it counts where it is


class Handover(NamedTuple):
    """A leadership to be handed over, from node to node."""

    group: int
    source: int
    target: int


def has_quorum(voters: Collection[int], up: Collection[int]) -> bool:
    """Return whether a majority of voters is up."""
    return 2 * sum(voter in up for voter in voters) > len(voters)


def removal_problem(queue: Queue, node: int, up: Collection[int]) -> str:
    """Return why a queue's replica must not be taken off a node now, "" when it may."""
    rest = [member for member in queue.members if member != node]
    if not rest:
        return "it is the last replica"
    if not has_quorum(rest, up):
        missing = sum(member not in up for member in rest)
        return (
            f"of the {len(rest)} replicas left, {missing} are on nodes that are down: the queue "
            "would have no majority"
        )
    return ""


def add_step(queue: Queue, node: int, places: Mapping[int, Place] = NO_PLACES) -> Step:
    """Return the step that gives a queue a replica on a node."""
    if queue.kind != QUEUE_QUORUM:
        return Step(queue, problem=f"a queue of type '{queue.kind}' has one replica")
    if node in queue.members:
        return Step(queue, problem="it has a replica there")
    if together(node, queue.members, places):
        return Step(queue, problem="it has a replica in another process of that node")
    if len(queue.members) >= REPLICAS_MAX:
        return Step(queue, problem=f"it has {REPLICAS_MAX} replicas, which is the most")
    return Step(queue, add=(node,))


def remove_step(queue: Queue, node: int, up: Collection[int]) -> Step:
    """Return the step that takes a queue's replica off a node."""
    if node not in queue.members:
        return Step(queue, problem="it has no replica there")
    problem = removal_problem(queue, node, up)
    return Step(queue, problem=problem) if problem else Step(queue, remove=(node,))


def grow(
    queues: Iterable[Queue],
    node: int,
    strategy: str = GROW_ALL,
    places: Mapping[int, Place] = NO_PLACES,
) -> list[Step]:
    """Return what gives each of these queues a replica on a node, as far as they can have one.

    Queues that have a replica there are passed over, and so are those that are not replicated.
    """
    return [
        add_step(queue, node, places)
        for queue in queues
        if queue.kind == QUEUE_QUORUM
        and node not in queue.members
        and (strategy != GROW_EVEN or len(queue.members) % 2 == 0)
    ]


def shrink(
    queues: Iterable[Queue],
    node: int,
    up: Collection[int],
    spares: Mapping[int, int],
    places: Mapping[int, Place] = NO_PLACES,
) -> list[Step]:
    """Return what takes these queues off a node, as far as they can go.

    Those without a replica there, or in memory, are passed over. A queue keeps its number of
    replicas where one of `spares` (replicas by node) has none of it yet, of those in the zones, and
    on the hosts, with the fewest of its other replicas (`places` by node); otherwise it has one
    less.
    """
    counts = {spare: count for spare, count in spares.items() if spare in up and spare != node}
    steps: list[Step] = []
    for queue in queues:
        if node not in queue.members or not queue.logged:
            continue
        rest = [member for member in queue.members if member != node]
        free = [spare for spare in counts if not together(spare, rest, places)]
        if free:
            spare = min(
                free,
                key=lambda each: (shares(each, rest, places), load(each, counts, rest, places)),
            )
            if has_quorum([*rest, spare], up):
                counts[spare] += 1
                steps.append(Step(queue, add=(spare,), remove=(node,)))
                continue
        steps.append(remove_step(queue, node, up))
    return steps


def rebalance(queues: Sequence[Led], nodes: Collection[int]) -> list[Handover]:
    """Return what spreads leaders evenly over nodes, each queue handed over once at most."""
    counts = leader_counts(queues, nodes)
    places = {led.group: led.leader for led in queues}
    moved = True
    while moved:
        moved = False
        for led in queues:
            source = places[led.group]
            target = _lighter(led, source, counts, nodes, source not in nodes)
            if target != source:
                places[led.group] = target
                counts[source] -= 1
                counts[target] += 1
                moved = True
    return [
        Handover(led.group, led.leader, places[led.group])
        for led in queues
        if places[led.group] != led.leader
    ]


def leader_counts(queues: Iterable[Led], nodes: Collection[int]) -> dict[int, int]:
    """Return how many queues each node leads: these nodes, in order, and others that lead some."""
    counts = dict.fromkeys(sorted(nodes), 0)
    for led in queues:
        counts[led.leader] = counts.get(led.leader, 0) + 1
    return counts


def _lighter(
    led: Led, place: int, counts: Mapping[int, int], nodes: Collection[int], leaves: bool
) -> int:
    """Return the node that should lead a queue rather than the one at its place, or that one.

    `leaves`: it goes elsewhere whether that makes the counts by node more equal or not.
    """
    free = [node for node in (led.leader, *led.candidates) if node in nodes]
    if not free:
        return place
    target = min(free, key=lambda node: (counts[node], node))
    if target != place and (leaves or counts[place] - counts[target] >= BALANCE_APART_MIN):
        return target
    return place


def is_uneven(counts: Mapping[int, int], nodes: Collection[int]) -> bool:
    """Return whether counts of leaders by node are so uneven that spreading is worth beginning."""
    fewest = min((counts.get(node, 0) for node in nodes), default=None)
    if fewest is None:
        return False
    percent = sum(counts.values()) * BALANCE_APART_PERCENT
    apart = max(counts.values()) - fewest
    return apart >= BALANCE_APART_MIN and apart * 100 * len(counts) >= percent


def spread(
    queues: Sequence[Movable], counts: Mapping[int, int], nodes: Collection[int]
) -> list[Handover]:
    """Return the next few handovers that spread leaders more evenly, none where they are.

    Each makes the numbers of two nodes more equal, so that repeating this ends, and never hands
    over what another one has brought about. Queues without traffic go first, some at a time; those
    with traffic only where none without can, fewer at a time.

    Args:
        queues: those that may be handed over, or some of them.
        counts: how many queues each node leads.
        nodes: node ids of the nodes that may get leaders. What others lead counts, and stays unless
            it makes the numbers more equal.
    """
    counts = {**dict.fromkeys(nodes, 0), **counts}
    for busy, at_once in ((False, idle_at_once(counts)), (True, BALANCE_BUSY_AT_ONCE)):
        moves: list[Handover] = []
        movable = [each.led for each in queues if each.busy is busy and not each.stays]
        for led in sorted(movable, key=lambda each: (-counts[each.leader], each.group)):
            target = _lighter(led, led.leader, counts, nodes, False)
            if target != led.leader:
                moves.append(Handover(led.group, led.leader, target))
                counts[led.leader] -= 1
                counts[target] += 1
            if len(moves) == at_once:
                break
        if moves:
            return moves
    return []


def idle_at_once(counts: Mapping[int, int]) -> int:
    """Return how many queues without traffic are handed over after one look, of so many led."""
    return max(BALANCE_IDLE_AT_ONCE, sum(counts.values()) * BALANCE_IDLE_PERCENT // 100)


def lighter_nodes(node: int, counts: Mapping[int, int], nodes: Collection[int]) -> tuple[int, ...]:
    """Return those of `nodes` that lead so much less than a node that it may hand over to them."""
    own = counts.get(node, 0)
    return tuple(sorted(each for each in nodes if own - counts.get(each, 0) >= BALANCE_APART_MIN))


def critical(voters_of: Mapping[int, Collection[int]], node: int, up: Collection[int]) -> list[int]:
    """Return the groups (node ids of voters by group) without a majority were a node down.

    Those that have none now are among them: they may come back with this node's help only.
    """
    rest = [each for each in up if each != node]
    return [
        group
        for group, voters in voters_of.items()
        if node in voters and not has_quorum(voters, rest)
    ]
