"""A cluster in memory that does what steps say, takes its time over it, and has accidents."""

from __future__ import annotations

from headrace_operator.plans.observation import (
    Bounds,
    BrokerNode,
    Cluster,
    Pod,
    PodState,
    Quorum,
    Waiting,
)
from headrace_operator.plans.step import Action, Step

STATES = (PodState.ABSENT, PodState.PENDING, PodState.RUNNING, PodState.READY)
SECONDS_OF_TURN = 10.0


class Member:
    """A pod and its node."""

    def __init__(self, revision: int) -> None:
        self.state = PodState.ABSENT
        self.revision = revision
        self.known = False
        self.draining = False
        self.drained = False

    @property
    def running(self) -> bool:
        return self.state in (PodState.RUNNING, PodState.READY) and self.known


class World:
    """Pods that start in a few turns, replicas that catch up in one, moves that take one each.

    Args:
        nodes: pods at the beginning.
        queues: for each queue the ordinals of its voters.
    """

    def __init__(self, nodes: int, queues: list[set[int]]) -> None:
        self.revision = 1
        self.replicas = nodes
        self.wanted = nodes
        self.members = {each: Member(1) for each in range(nodes)}
        for each in self.members.values():
            each.state, each.known = PodState.READY, True
        self.queues = [(set(voters), set(voters)) for voters in queues]  # voters, current
        self.claims = set(range(nodes))
        self.ours: set[int] = set()
        self.waiting = Waiting()
        self.step = Step(Action.NOTHING)

    def seen(self) -> Cluster:
        pods = {
            at: Pod(each.state, each.revision != self.revision)
            for at, each in self.members.items()
            if each.state is not PodState.ABSENT
        }
        nodes = {
            at: BrokerNode(
                each.running, each.draining, each.drained, sum(at in v for v, _ in self.queues)
            )
            for at, each in self.members.items()
            if each.known
        }
        quorums = tuple(
            Quorum(frozenset(v), frozenset(c & self.up()), f"queue {at}")
            for at, (v, c) in enumerate(self.queues)
        )
        return Cluster(
            *(self.wanted, self.replicas, pods, nodes, quorums, frozenset(self.claims)),
            *(self.waiting, Bounds(30, 60, 120), frozenset(self.ours)),
            answers=bool(self.up()),
            delete_claims=True,
        )

    def up(self) -> set[int]:
        return {at for at, each in self.members.items() if each.running}

    def execute(self, step: Step) -> None:
        """Run a step; the broker refuses what a real one would refuse."""
        seconds = self.waiting.seconds + SECONDS_OF_TURN if step.what == self.waiting.what else 0.0
        self.waiting = Waiting(step.what, seconds)
        self.step = step
        match step.action:
            case Action.SCALE:
                self._scale(step.subject)
            case Action.DRAIN:
                self.members[step.subject].draining = True
                self.ours.add(step.subject)
            case Action.REVIVE:
                self.members[step.subject].draining = self.members[step.subject].drained = False
                self.ours.discard(step.subject)
            case Action.RESTART:
                self.kill(step.subject)
                self.members[step.subject].revision = self.revision
            case Action.FORGET:
                self._forget(step.subject)
            case Action.DELETE_CLAIM:
                self.claims.remove(step.subject)
            case _:
                pass

    def pass_time(self) -> None:
        """One turn: pods get on, nodes are drained, replicas that run catch up."""
        for at, each in self.members.items():
            if each.draining and each.running:
                each.drained = True
            if at < self.replicas and each.state is not PodState.READY:
                up = STATES[STATES.index(each.state) + 1]
                each.state = PodState.RUNNING if each.draining and up is PodState.READY else up
                each.known = each.known or up is PodState.RUNNING
        for voters, current in self.queues:
            current |= voters & self.up()

    def kill(self, ordinal: int) -> None:
        """A pod is gone, and comes again; its replicas will have to catch up."""
        self.members[ordinal].state = PodState.ABSENT
        for _, current in self.queues:
            current.discard(ordinal)

    def _scale(self, replicas: int) -> None:
        for at in range(replicas, self.replicas):
            self.members[at].state = PodState.ABSENT
        for at in range(self.replicas, replicas):
            if at not in self.members or not self.members[at].known:
                self.members[at] = Member(self.revision)
            self.claims.add(at)
        self.replicas = replicas

    def _forget(self, ordinal: int) -> None:
        """One replica moves in a turn; a node without any is forgotten."""
        for voters, current in self.queues:
            if ordinal in voters:
                room = sorted(self.up() - voters - set(range(self.wanted, 99)))
                voters.discard(ordinal)
                current.discard(ordinal)
                if room:
                    voters.add(room[0])
                    current.add(room[0])
                return
        self.members[ordinal].known = False
        self.ours.discard(ordinal)
