"""A leader's view of one follower, and flow control towards it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

PROBE: Final = 0  # the matching index is not known: one APPEND at a time
REPLICATE: Final = 1  # it is: APPENDs are pipelined within the in-flight bounds
SNAPSHOT_OFFERED: Final = 2  # it lacks what only the snapshot has: offered, nothing else is sent

STATE_NAMES: Final = ("probe", "replicate", "snapshot")


@final
class Progress:
    """Replication state of one other member, kept by the leader.

    Source: thesis sections 10.2.1 (pipelining) and 4.2.1 (rounds); the states are those of etcd's
    raft.
    """

    def __init__(
        self, member: i64, next_index: i64, inflight_max: i64, inflight_bytes_max: i64
    ) -> None:
        self.member = member  # its id
        self.inflight_max = inflight_max
        self.inflight_bytes_max = inflight_bytes_max
        # (last index, bytes) of APPENDs that are not acknowledged, oldest first
        self.inflight: list[tuple[int, int]] = []
        self.inflight_bytes: i64 = 0  # entry data in them
        self.state: i64 = PROBE  # PROBE, REPLICATE or SNAPSHOT_OFFERED
        self.match: i64 = 0  # highest index known to be durable there and equal to the leader's
        # first index of the next APPEND, always above `match`; while a snapshot is offered, the
        # first one behind it
        self.next_index: i64 = next_index
        # PROBE, SNAPSHOT_OFFERED: something is out and nothing was heard since
        self.probe_sent = False
        self.recent_active = False  # something was heard since the last check of the quorum
        self.commit_sent: i64 = 0  # highest commit index that a message sent to it can teach it
        # an APPEND is owed even if it is empty, to find out whether some got lost
        self.flush = False
        # its node cannot be reached, as the leader's host knew when it was last asked
        self.down = False
        self.read_round: i64 = 0  # newest round of heartbeats that it has answered
        # last index of the round of catching up that is under way, 0 for none
        self.round_end: i64 = 0
        self.round_ticks: i64 = 0  # ticks of the leader since that round began
        self.keeps_pace = False  # the round before it took less than an election timeout

    def become_probe(self) -> None:
        """Stop pipelining; the next APPEND starts after the known match."""
        self._become(PROBE, self.match + 1)
        self.commit_sent = min(self.commit_sent, self.match)

    def become_replicate(self) -> None:
        """Start pipelining after the known match."""
        self._become(REPLICATE, self.match + 1)

    def become_offered(self, index: i64) -> None:
        """Send nothing more: the follower is to fetch the snapshot that ends at `index`."""
        self._become(SNAPSHOT_OFFERED, index + 1)
        self.probe_sent = True
        self.round_end = 0
        self.keeps_pace = False

    def is_full(self) -> bool:
        """Return whether the in-flight bounds forbid another APPEND with entries."""
        return (
            len(self.inflight) >= self.inflight_max
            or self.inflight_bytes >= self.inflight_bytes_max
        )

    def is_out_of_reach(self) -> bool:
        """Return whether nothing was heard since a message to it got lost, or since a probe.

        A member that fetches a snapshot is in reach until it is reported otherwise.
        """
        return self.state == PROBE and self.probe_sent

    def sent(self, last_index: i64, size: i64) -> None:
        """Account an APPEND whose last entry is `last_index` and holds `size` bytes."""
        if self.state == PROBE:
            self.probe_sent = True
            return
        self.inflight.append((last_index, size))
        self.inflight_bytes += size
        self.next_index = last_index + 1

    def acknowledged(self, index: i64) -> bool:
        """Take a successful answer up to `index`; return whether `match` grew.

        A probe that succeeds ends probing even where it teaches nothing new.
        """
        grew = index > self.match
        if grew:
            self.match = index
            self.next_index = max(self.next_index, index + 1)
        if self.state != REPLICATE:
            if index >= self.match:
                self.become_replicate()
        else:
            self._free_to(index)
        return grew

    def follow_round(self, last_index: i64, election_ticks: i64) -> None:
        """End a learner's round where it has all of it, and begin the next one.

        A round replicates what the leader's log had when it began. The rounds of a learner that
        keeps pace are short, however many entries come meanwhile. One that has everything begins
        none, so that a burst behind an idle time has to be replicated once before it counts.

        Args:
            last_index: of the leader's log.
            election_ticks: of a shortest election timeout.
        """
        if self.match < self.round_end:
            return
        self.keeps_pace = self.round_end > 0 and self.round_ticks < election_ticks
        self.round_end = last_index if last_index > self.match else 0
        self.round_ticks = 0

    def rejected(self, index: i64, agree_index: i64) -> bool:
        """Take a refusal of the APPEND that followed `index`; return False if it is stale.

        Args:
            index: the index that did not match.
            agree_index: highest index at which the logs may agree.
        """
        if self.state == REPLICATE:
            if index <= self.match:
                return False
            self.become_probe()
            return True
        if self.state != PROBE or index != self.next_index - 1:
            return False
        self.next_index = max(min(index, agree_index + 1), self.match + 1)
        self.probe_sent = False
        return True

    def _become(self, state: i64, next_index: i64) -> None:
        self.inflight.clear()
        self.inflight_bytes = 0
        self.state = state
        self.probe_sent = False
        self.flush = False
        self.next_index = next_index

    def _free_to(self, index: i64) -> None:
        inflight = self.inflight
        count: i64 = 0
        while count < len(inflight) and inflight[count][0] <= index:
            self.inflight_bytes -= inflight[count][1]
            count += 1
        if count > 0:
            del inflight[:count]
