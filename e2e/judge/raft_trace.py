"""`python -m e2e.judge.raft_trace`: traces of the Raft core in the simulator, judged by TLC.

All groups of a seed's run are traced, and one is judged. It needs `simulation` on PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from e2e.judge import tlc
from e2e.judge.data_module import module

from headrace_raftlog.model.group import LEADER
from headrace_simulation.simulator.cluster import Simulation
from headrace_simulation.simulator.plan import Plan

SEEDS: Final = range(12)
EVENTS: Final = 3000
Event = tuple[Any, ...]


class Recorder:
    """Traces a group by what its checker is shown, before the checker judges it."""

    def __init__(self, checker: Any) -> None:
        self.events: list[Event] = []
        self.joint = 0  # leaders and commits under a joint membership
        self._checker = checker
        self._numbers: dict[int, int] = {}  # of member ids, which are too large for TLC
        self._votes: dict[int, tuple[int, int]] = {}
        self._logs: dict[int, Event] = {}
        self._leads: set[tuple[int, int]] = set()
        self._commits: dict[int, int] = {}
        self._deciding: dict[int, Any] = {}  # memberships in force before the next event
        self._started: Callable[[Any], None] = checker.started
        self._judge: Callable[[Any], None] = checker.observe
        checker.started, checker.observe = self.started, self.observe

    def _number(self, member: int) -> int:
        return self._numbers.setdefault(member, len(self._numbers) + 1)

    def started(self, replica: Any) -> None:
        """Note what a member came back with."""
        self._note(replica)
        self._started(replica)

    def observe(self, replica: Any) -> None:
        """Record what is new, then let the checker observe."""
        for store in self._checker.stores:
            durable = store.durable.get(self._checker.group)
            if durable is not None:
                self._disk(durable)
        core = replica.core
        if core.role == LEADER:
            self._leader(replica, self._deciding[replica.member])
        self._note(replica)
        self._judge(replica)

    def _note(self, replica: Any) -> None:
        self._commits[replica.member] = replica.core.commit_index
        self._deciding[replica.member] = replica.core.membership

    def _disk(self, durable: Any) -> None:
        member, hard_state = self._number(durable.member), durable.hard_state
        vote = (hard_state.term, self._number(hard_state.vote) if hard_state.vote else 0)
        if hard_state.vote and self._votes.get(member) != vote:
            self._votes[member] = vote
            self.events.append(("vote", member, *vote))
        base = durable.first_index() - 1
        terms = [durable.term_at(index) for index in range(base + 1, durable.last_index() + 1)]
        log = ("log", member, base, terms)
        if self._logs.get(member) != log:
            self._logs[member] = log
            self.events.append(log)

    def _leader(self, replica: Any, membership: Any) -> None:
        core, member = replica.core, self._number(replica.member)
        electorates = (membership.voters, membership.outgoing)
        place = (member, core.term, *({self._number(each) for each in who} for who in electorates))
        if (member, core.term) not in self._leads:
            self._leads.add((member, core.term))
            self.joint += membership.is_joint
            self.events.append(("lead", *place))
        base = max(self._commits.get(replica.member, 0), replica.log.first_index() - 1)
        if core.commit_index > base:
            self.joint += membership.is_joint
            indexes = range(base + 1, core.commit_index + 1)
            terms = [replica.log.term_at(index) for index in indexes]
            self.events.append(("commit", *place, base, terms))


def record(seed: int) -> Recorder:
    """Run a seed; return the trace of the group with most under joint memberships.

    Raises:
        AssertionError: the simulator itself found something wrong.
    """
    simulation = Simulation(Plan(seed, events=EVENTS))
    catalog: Any = simulation.catalog
    recorders = [Recorder(each.checker) for each in catalog.records]
    add_record = catalog.add

    def add(created: Any) -> None:
        add_record(created)
        recorders.append(Recorder(created.checker))

    catalog.add = add
    outcome = simulation.run()
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
    return max(recorders, key=lambda each: (each.joint, len(each.events)))


def judge(events: list[Event], name: str) -> tuple[bool, int]:
    """Return whether TLC accepts a trace, and how many events it followed."""
    data = {"Data": module("Trace", events)}
    found = tlc.check("RaftTrace", tlc.PLACE / name, data)
    return found.finished, len(events) if found.finished else tlc.last_value(found.text, "at") - 1


def without_votes(events: list[Event]) -> list[Event]:
    """Remove the votes of others by which the last leader was elected."""
    _, leader, term, *_ = next(each for each in reversed(events) if each[0] == "lead")
    return [
        each
        for each in events
        if not (each[0] == "vote" and each[1] != leader and each[2:] == (term, leader))
    ]


def with_early_commit(events: list[Event]) -> list[Event]:
    """Commit an entry on a leader that no member holds."""
    place = max(number for number, each in enumerate(events) if each[0] == "commit")
    *head, terms = events[place]
    return [*events[:place], (*head, [*terms, terms[-1]]), *events[place + 1 :]]


def main() -> int:
    """Judge all seeds, and doctored traces; return 1 if a verdict is wrong."""
    wrong = joint = 0
    for seed in SEEDS:
        recorder = record(seed)
        joint += recorder.joint
        accepted, followed = judge(recorder.events, f"raft-{seed}")
        wrong += not accepted
        text = "accepted" if accepted else "REJECTED"
        _say(f"seed {seed}: {text}, {followed} of {len(recorder.events)} events")
    for doctor in (without_votes, with_early_commit):
        accepted, _ = judge(doctor(recorder.events), f"raft-{doctor.__name__}")
        wrong += accepted
        _say(f"doctored, {doctor.__name__}: {'NOT REJECTED' if accepted else 'rejected'}")
    _say(f"{joint} elections and commits were under a joint membership")
    return 1 if wrong or not joint else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
