"""Plan and outcome of a seed's run."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.simulator.host_faults import HostFaults


@dataclass(frozen=True)
class Plan:
    """Plan of a seed's run.

    Attributes:
        seed: decides everything below that is left open.
        profile: name of a profile, or None for the seed to choose.
        events: events under faults, before everything heals.
        tracing: keep a trace.
        contract: check what messages promise about the disk; see `Checker`.
        faults: bugs of the host to inject.
        core_type: the core under test.
    """

    seed: int
    profile: str | None = None
    events: int = 1500
    tracing: bool = False
    contract: bool = True
    faults: HostFaults = field(default_factory=HostFaults)
    core_type: type[RaftCore] = RaftCore


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        seed: its seed.
        violation: text of the first violated invariant, None if all held.
        invariant: its number, 0 for none or for an exception in the core.
        events: events simulated.
        coverage: what was reached, and how often.
        trace: lines, empty unless tracing.
    """

    seed: int
    violation: str | None
    invariant: int
    events: int
    coverage: dict[str, int]
    trace: list[str]
