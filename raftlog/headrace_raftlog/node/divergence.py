"""Which members of a group have another state than the others (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from headrace_raftlog.model.state_digest import StateDigest


class Verdict(NamedTuple):
    """Result of one comparison; all members empty where nothing differs."""

    wrong: tuple[int, ...] = ()  # members that differ from a majority of the voters
    undecided: tuple[int, ...] = ()  # members that differ, while no state has a majority


def judge(voters: Collection[int], digests: Collection[StateDigest]) -> Verdict:
    """Compare digests of one checkpoint.

    Only digests of one version are compared. A state is right where more than half of all voters
    have it, whether the others answered or not.

    Args:
        voters: member ids, 1 or more.
        digests: of voters and learners, each once.
    """
    told = [each for each in digests if each.version]
    votes = Counter((each.version, each.digest) for each in told if each.member in voters)
    if votes:
        (version, digest), count = votes.most_common(1)[0]
        if 2 * count > len(voters):
            differing = [d.member for d in told if d.version == version and d.digest != digest]
            return Verdict(wrong=tuple(sorted(differing)))
    seen: dict[str, set[bytes]] = {}
    for each in told:
        seen.setdefault(each.version, set()).add(each.digest)
    differing = [each.member for each in told if len(seen[each.version]) > 1]
    return Verdict(undecided=tuple(sorted(differing)))
