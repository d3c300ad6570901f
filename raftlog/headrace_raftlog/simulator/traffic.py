"""Traffic of one group without progress, counted and bounded.

Messages from one member to another draw on budgets that progress of either fills again: more
entries, committed, applied or known to match. A loop without progress empties them, however slowly.
"""

from __future__ import annotations

from typing import Final, final

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.message import APPEND, HEARTBEAT, SNAPSHOT, Message
from headrace_raftlog.simulator.invariant_error import InvariantError
from headrace_raftlog.simulator.port import MemberPort

SENDS_MAX: Final = 150  # APPENDs and SNAPSHOTs beyond those that heartbeats explain
ANSWERED: Final = 1  # such messages that a heartbeat explains: its answer asks for one
REPEATED: Final = 3  # more where messages arrive twice: a heartbeat and its answer
OTHERS_MAX: Final = 200  # all other messages beyond those that time explains
OTHERS_PER_TICK: Final = 3  # of the sender
FETCHES_MAX: Final = 30  # requests for parts of snapshots beyond those that time explains
FETCHES_PER_TICK: Final = 1  # of the member that fetches


@final
class Budget:
    """Budget of messages until some progress.

    Attributes:
        left: messages.
        ticks: of the sender when it was last looked at.
        mark: the furthest that things had got.
    """

    def __init__(self, most: int, ticks: int, mark: tuple[int, ...]) -> None:
        self.most = most
        self.left = most
        self.ticks = ticks
        self.mark = mark

    def draw(self, ticks: int, per_tick: int, mark: tuple[int, ...]) -> bool:
        """Take one message into account; return False where there is no budget for it."""
        ahead = [max(one, other) for one, other in zip(mark, self.mark, strict=True)]
        if tuple(ahead) != self.mark:
            self.mark = tuple(ahead)
            self.left = self.most
        self.grant(per_tick * (ticks - self.ticks))
        self.ticks = ticks
        self.left -= 1
        return self.left >= 0

    def grant(self, more: int) -> None:
        """Allow more messages, up to the most."""
        self.left = min(self.most, self.left + more)


@final
class Traffic:
    """Counts the messages of one group.

    Attributes:
        sent_by: messages of members since they were last counted, by member.
    """

    def __init__(self) -> None:
        self._sends: dict[tuple[int, int], Budget] = {}
        self._others: dict[tuple[int, int], Budget] = {}
        self._fetches: dict[int, Budget] = {}
        self.sent_by: dict[int, int] = {}

    def disturb(self) -> None:
        """Allow for the burst of a node that was paused, or whose clock jumped."""
        for budgets in (self._sends, self._others):
            for budget in budgets.values():
                budget.grant(budget.most)

    def asked(self) -> None:
        """Allow for the heartbeats and answers of one read."""
        for budgets in (self._sends, self._others):
            for budget in budgets.values():
                budget.grant(2)

    def sent(self, replica: MemberPort, message: Message) -> None:
        """Take a message into account that leaves a member."""
        member = replica.member
        self.sent_by[member] = self.sent_by.get(member, 0) + 1
        key = (member, message.target)
        sends = message.kind in (APPEND, SNAPSHOT)
        budgets, most = (self._sends, SENDS_MAX) if sends else (self._others, OTHERS_MAX)
        mark = _mark(replica.core, message.target)
        ticks = replica.node.ticks
        budget = budgets.get(key)
        if budget is None:
            budget = budgets[key] = Budget(most, ticks, mark)
        if not budget.draw(ticks, 0 if sends else OTHERS_PER_TICK, mark):
            raise InvariantError(
                22, f"{most} messages beyond what is due, and no progress; the last: {message!r}"
            )
        if message.kind == HEARTBEAT and key in self._sends:
            repeats = replica.node.parameters.duplicate > 0
            self._sends[key].grant(ANSWERED + (REPEATED if repeats else 0))

    def fetched(self, replica: MemberPort, index: int, size: int) -> None:
        """Take a request into account for what follows `size` parts of the snapshot at `index`."""
        mark = (index << 32 | size, replica.core.commit_index)
        ticks = replica.node.ticks
        budget = self._fetches.get(replica.member)
        if budget is None:
            budget = self._fetches[replica.member] = Budget(FETCHES_MAX, ticks, mark)
        if not budget.draw(ticks, FETCHES_PER_TICK, mark):
            raise InvariantError(
                22, f"member {replica.member} fetches snapshot {index} again, and no progress"
            )


def _mark(core: RaftCore, target: int) -> tuple[int, ...]:
    """Return the progress of a member and of its knowledge of another one."""
    progress = core.progress(target)
    match = 0 if progress is None else core.term << 32 | progress.match
    probed = 0 if progress is None else core.term << 32 | (1 << 31) - progress.next_index
    return (core.commit_index, core.applied_index, core.last_index, match, probed)
