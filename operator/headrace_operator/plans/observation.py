"""Observed state of a cluster, as plain values.

Pods, nodes and replicas are known by the pod's ordinal. The node of pod n is the one that the
catalog knows by the pod's name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

NEVER: Final = "never"  # no wait goes on


class PodState(StrEnum):
    """Progress of a pod."""

    ABSENT = "absent"
    PENDING = "pending"  # it is not scheduled, or pulls its image
    RUNNING = "not ready"
    READY = "ready"
    TERMINATING = "terminating"


class Pod(NamedTuple):
    """A pod of the StatefulSet.

    Attributes:
        state: how far it is.
        outdated: it was made from another template than the wanted one.
    """

    state: PodState
    outdated: bool = False


class BrokerNode(NamedTuple):
    """A node that the catalog knows.

    Attributes:
        running: other nodes hear it, or it answered.
        draining: it is to lead nothing and to take no clients.
        drained: it does neither.
        replicas: of queues that it has, those on their way elsewhere too.
        lacks: queues that are to get a replica there.
    """

    running: bool
    draining: bool = False
    drained: bool = False
    replicas: int = 0
    lacks: int = 0


class Quorum(NamedTuple):
    """Queues (or the catalog) with replicas in the same state.

    Attributes:
        voters: where their voting replicas are.
        current: those of them that answer and have everything that is committed.
        example: what one of them is called, such as "queue 'tasks' in vhost '/'".
    """

    voters: frozenset[int]
    current: frozenset[int]
    example: str = ""

    def may_miss(self, ordinal: int) -> bool:
        """Return whether a majority of the voters is left while a node is away.

        What has one replica only is not kept from going with it: it is unavailable while its node
        restarts, whatever the order of things.
        """
        if ordinal not in self.voters or len(self.voters) == 1:
            return True
        return len(self.current - {ordinal}) > len(self.voters) // 2

    def may_lose(self, ordinal: int) -> bool:
        """Return whether a node's replica can be given up, or moved, for good.

        Those who vote before and those who vote after have to agree on it, each by majority.
        """
        if ordinal not in self.voters:
            return True
        after = self.voters - {ordinal}
        agreed = len(self.current) > len(self.voters) // 2
        return agreed and (not after or len(self.current & after) > len(after) // 2)


class Bounds(NamedTuple):
    """For how long steps are waited for, in seconds; see `Rollout` of the cluster's spec."""

    drain: float = 60
    catch_up: float = 900
    move: float = 3600


class Waiting(NamedTuple):
    """Condition that the last reconcile waited for.

    Attributes:
        what: the `Step.what` that the step of then had.
        seconds: since it was the same.
    """

    what: str = NEVER
    seconds: float = 0


class Cluster(NamedTuple):
    """All that a plan depends on.

    Attributes:
        wanted: nodes that the spec asks for.
        replicas: pods that the StatefulSet is told to have.
        pods: by ordinal; one that is missing is absent.
        nodes: by ordinal; a missing one is not known to the catalog.
        quorums: of all queues, and of the catalog.
        claims: ordinals of the volume claims that there are.
        waiting: for what, since when.
        bounds: of waits.
        drained_by_us: ordinals of nodes that the operator drained; others stay so until somebody
            revives them.
        answers: a node answered; what is said of nodes and quorums is known.
        paused: nothing is to be changed.
        forced: the node that may be restarted though queues lose their majority by it.
        delete_claims: volumes of nodes that are forgotten go too.
    """

    wanted: int
    replicas: int
    pods: dict[int, Pod]
    nodes: dict[int, BrokerNode]
    quorums: tuple[Quorum, ...] = ()
    claims: frozenset[int] = frozenset()
    waiting: Waiting = Waiting()
    bounds: Bounds = Bounds()
    drained_by_us: frozenset[int] = frozenset()
    answers: bool = True
    paused: bool = False
    forced: int | None = None
    delete_claims: bool = False

    def pod(self, ordinal: int) -> Pod:
        """Return a pod, absent or not."""
        return self.pods.get(ordinal, Pod(PodState.ABSENT))

    def is_well(self, ordinal: int) -> bool:
        """Return whether a pod serves, or only does not since its node is drained."""
        state = self.pod(ordinal).state
        node = self.nodes.get(ordinal)
        if node is None or not node.running:
            return False
        return state is PodState.READY or (state is PodState.RUNNING and node.draining)

    def endangered(self, ordinal: int) -> Quorum | None:
        """Return queues that have no majority without a node, if there are any."""
        return next((each for each in self.quorums if not each.may_miss(ordinal)), None)

    def relies_on(self, ordinal: int) -> bool:
        """Return whether queues would lose the majority that they have with a node."""
        return any(
            ordinal in each.current
            and len(each.current) > len(each.voters) // 2
            and not each.may_miss(ordinal)
            for each in self.quorums
        )

    def bound_to(self, ordinal: int) -> Quorum | None:
        """Return queues that cannot give up their replica on a node, if there are any."""
        return next((each for each in self.quorums if not each.may_lose(ordinal)), None)
