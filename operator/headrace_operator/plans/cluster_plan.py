"""The next step towards the cluster that is wanted.

One step at a time, and each from what is seen anew: so nothing is lost when the operator is
restarted in the middle. No step takes from any queue with more than one replica the majority that
it has. Rules are tried in order, the first that has something to say decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headrace_operator.plans.observation import Cluster, PodState
from headrace_operator.plans.step import Action, Step

DRAIN: Final = "drain "  # with an ordinal: what is waited for while a node is drained

Rule = Callable[[Cluster], Step | None]


def next_step(seen: Cluster) -> Step:
    """Return the next step; NOTHING when the cluster has its wanted state."""
    for rule in RULES:
        step = rule(seen)
        if step is not None:
            return step
    return Step(Action.NOTHING, reason="the cluster is as it should be")


def _wait(seen: Cluster, what: str, bound: float, reason: str) -> Step:
    waiting = seen.waiting
    overdue = waiting.what == what and waiting.seconds > bound
    if overdue:
        reason = f"{reason}; this takes longer than {bound:.0f} s"
    return Step(Action.WAIT, -1, reason, what, overdue)


def _is_overdue(seen: Cluster, what: str, bound: float) -> bool:
    return seen.waiting.what == what and seen.waiting.seconds > bound


def _paused(seen: Cluster) -> Step | None:
    return Step(Action.NOTHING, reason="paused: nothing is changed") if seen.paused else None


def _scaled_out(seen: Cluster) -> Step | None:
    if seen.replicas >= seen.wanted:
        return None
    return Step(Action.SCALE, seen.wanted, f"{seen.replicas} of {seen.wanted} nodes are there")


def _answered(seen: Cluster) -> Step | None:
    """Pods that never came up are made anew; all else has to wait for a node that answers.

    Where that takes too long and no pod is ready, those that run go, too: they may end again and
    again for what the new template puts right, such as too little memory.
    """
    if seen.answers:
        return None
    pods = [seen.pod(ordinal) for ordinal in range(seen.replicas)]
    what, bound = "answer", seen.bounds.catch_up
    lost = _is_overdue(seen, what, bound) and all(pod.state is not PodState.READY for pod in pods)
    gone = (PodState.PENDING, PodState.RUNNING) if lost else (PodState.PENDING,)
    for ordinal, pod in enumerate(pods):
        if pod.outdated and pod.state in gone:
            reason = f"pod {ordinal} does not start, and is of an old template"
            return Step(Action.RESTART, ordinal, reason, what)
    return _wait(seen, what, bound, "no node answers")


def _leaving(seen: Cluster) -> Iterator[int]:
    """Ordinals of pods that are too many, and of nodes without a pod; the highest first."""
    top = max([seen.replicas - 1, *seen.nodes])
    yield from range(top, seen.wanted - 1, -1)


def _well(seen: Cluster) -> Step | None:
    """Wait until all pods that stay serve, before anything else is changed.

    Pods that do not serve and are of an old template are restarted, each of them: one that waits
    for the others' votes will not serve before them. A pod that lost its volume needs no step of
    its own: its node joins again as a new member and gets its data from the others.
    """
    ill = [ordinal for ordinal in range(seen.wanted) if not seen.is_well(ordinal)]
    for ordinal in ill:
        pod, node = seen.pod(ordinal), seen.nodes.get(ordinal)
        is_up = node is not None and node.running
        starts = pod.state in (PodState.PENDING, PodState.RUNNING) and not is_up
        if pod.outdated and starts and not seen.relies_on(ordinal):
            reason = f"pod {ordinal} does not serve, and is of an old template"
            return Step(Action.RESTART, ordinal, reason)
    for ordinal in ill:
        pod, node = seen.pod(ordinal), seen.nodes.get(ordinal)
        state = f"pod {ordinal} is {pod.state}"
        if node is None:
            state += ", its node has not joined the cluster"
        elif not node.running:
            state += ", its node is not heard"
        return _wait(seen, f"pod {ordinal}", seen.bounds.catch_up, state)
    return None


def _caught_up(seen: Cluster) -> Step | None:
    """Wait, within bounds, until all replicas on nodes that stay have everything.

    While a node is being drained this wait is over already, and does not begin again: the two
    waits would interrupt each other. Whether a node may go is checked again before it goes.
    """
    if seen.waiting.what.startswith(DRAIN):
        return None
    staying = frozenset(range(seen.wanted))
    for each in seen.quorums:
        behind = (each.voters - each.current) & staying
        if behind:
            what = f"replicas of {min(behind)}"
            if not _is_overdue(seen, what, seen.bounds.catch_up):
                reason = f"replicas on node {min(behind)} catch up, that of {each.example} for one"
                return _wait(seen, what, seen.bounds.catch_up, reason)
    return None


def _revived(seen: Cluster) -> Step | None:
    """A node that was drained for a restart serves again; one that a person drained does not."""
    for ordinal in sorted(seen.drained_by_us):
        stays = ordinal < seen.wanted and not seen.pod(ordinal).outdated
        if stays and seen.nodes[ordinal].draining:
            return Step(Action.REVIVE, ordinal, f"node {ordinal} is up to date, and serves again")
    return None


def _grown(seen: Cluster) -> Step | None:
    """Queues get replicas on nodes that came; those that find no room are left as they are."""
    for ordinal in range(seen.wanted):
        lacks, what = seen.nodes[ordinal].lacks, f"grow {ordinal}"
        if not lacks or _is_overdue(seen, what, seen.bounds.move):
            continue
        if seen.waiting.what == what:
            reason = f"{lacks} queues are still to get a replica on node {ordinal}"
            return _wait(seen, what, seen.bounds.move, reason)
        reason = f"{lacks} queues get a replica on node {ordinal}"
        return Step(Action.GROW, ordinal, reason, what)
    return None


def _shrunk(seen: Cluster) -> Step | None:
    """Nodes that are too many leave one after the other: drained, forgotten, their pods last."""
    for ordinal in _leaving(seen):
        node = seen.nodes.get(ordinal)
        if node is not None:
            return _left(seen, ordinal)
        if ordinal < seen.replicas:
            held = next((each for each in seen.quorums if ordinal in each.voters), None)
            if held is not None:
                reason = f"{held.example} has a replica on node {ordinal}, which is not known"
                return _wait(seen, f"replicas of {ordinal}", seen.bounds.move, reason)
            return Step(Action.SCALE, ordinal, f"node {ordinal} has left the cluster")
    return None


def _left(seen: Cluster, ordinal: int) -> Step:
    node = seen.nodes[ordinal]
    if node.running and not node.draining:
        return Step(Action.DRAIN, ordinal, f"node {ordinal} is to leave")
    what = f"{DRAIN}{ordinal}"
    if node.running and not node.drained and not _is_overdue(seen, what, seen.bounds.drain):
        return _wait(seen, what, seen.bounds.drain, f"node {ordinal} is drained before it leaves")
    quorum = seen.bound_to(ordinal)
    if quorum is not None:
        reason = f"node {ordinal} is to leave, and {quorum.example} has no majority for it"
        return _wait(seen, f"quorum without {ordinal}", seen.bounds.catch_up, reason)
    what = f"forget {ordinal}"
    overdue = _is_overdue(seen, what, seen.bounds.move)
    reason = f"node {ordinal} leaves the cluster"
    if node.replicas:
        reason += f", {node.replicas} replicas move to other nodes"
    if overdue:
        reason += f"; this takes longer than {seen.bounds.move:.0f} s"
    return Step(Action.FORGET, ordinal, reason, what, overdue)


def _rolled(seen: Cluster) -> Step | None:
    """Outdated pods are restarted one at a time, once their leaders are gone.

    The highest goes first, but for those without which a queue has no majority: the replica that
    it lacks may be on a pod below.
    """
    outdated = [each for each in reversed(range(seen.wanted)) if seen.pod(each).outdated]
    safe = [each for each in outdated if seen.endangered(each) is None or seen.forced == each]
    for ordinal in safe or outdated:
        return _restarted(seen, ordinal)
    return None


def _restarted(seen: Cluster, ordinal: int) -> Step:
    node = seen.nodes[ordinal]
    quorum = seen.endangered(ordinal)
    if quorum is not None and seen.forced != ordinal:
        reason = f"pod {ordinal} is to restart, and {quorum.example} has no majority without it"
        if len(quorum.voters) == 2:
            reason += "; a third replica would keep it"
        return _wait(seen, f"quorum without {ordinal}", seen.bounds.catch_up, reason)
    if seen.wanted > 1 and not node.draining:
        return Step(Action.DRAIN, ordinal, f"pod {ordinal} is to restart from the new template")
    what = f"{DRAIN}{ordinal}"
    if seen.wanted > 1 and not node.drained and not _is_overdue(seen, what, seen.bounds.drain):
        return _wait(seen, what, seen.bounds.drain, f"node {ordinal} is drained before it restarts")
    return Step(Action.RESTART, ordinal, f"pod {ordinal} restarts from the new template")


def _cleared(seen: Cluster) -> Step | None:
    """Volumes of nodes that have left go, where that is wanted."""
    if not seen.delete_claims:
        return None
    for ordinal in sorted(seen.claims, reverse=True):
        is_gone = seen.pod(ordinal).state is PodState.ABSENT and ordinal not in seen.nodes
        if ordinal >= seen.wanted and ordinal >= seen.replicas and is_gone:
            return Step(Action.DELETE_CLAIM, ordinal, f"node {ordinal} has left, and is not wanted")
    return None


RULES: Final[tuple[Rule, ...]] = (
    _paused,
    _scaled_out,
    _answered,
    _well,
    _caught_up,
    _revived,
    _grown,
    _shrunk,
    _rolled,
    _cleared,
)
