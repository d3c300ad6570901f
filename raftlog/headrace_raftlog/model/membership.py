"""Membership of a group: a value that travels in entries and snapshots."""

from __future__ import annotations

from struct import Struct, error
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX

NODE_BITS: Final = 10  # a member id is its node's id with a generation above these bits

_VERSION: Final = 1
_LEAD: Final = Struct("<BBBB")  # version, number of voters, of outgoing voters, of learners


def member_node(member: i64) -> i64:
    """Return the node that a member lives on."""
    return member & ((1 << NODE_BITS) - 1)


def member_id(node: i64, generation: i64) -> i64:
    """Return the id of a node's member.

    Args:
        node: 1 to NODE_ID_MAX.
        generation: 0 for a member that founded its group on its node's first disk; a random
            number of 32 bits, never 0, for one that replaces a member whose data was lost.
    """
    return (generation << NODE_BITS) | node


@final
class Membership:
    """The members of a group at one position of its log.

    Source: thesis section 4.3 (joint consensus).
    """

    def __init__(
        self,
        voters: tuple[int, ...],
        learners: tuple[int, ...] = (),
        outgoing: tuple[int, ...] = (),
    ) -> None:
        self.voters = tuple(sorted(voters))  # member ids that count, ascending
        # member ids that receive entries and never count, ascending
        self.learners = tuple(sorted(learners))
        # member ids that count as well, as a second electorate, while the membership is joint;
        # empty otherwise. Every decision then needs a majority of both.
        self.outgoing = tuple(sorted(outgoing))

    @property
    def is_joint(self) -> bool:
        """True while two electorates decide."""
        return len(self.outgoing) > 0

    def everyone(self) -> tuple[int, ...]:
        """Return all member ids, each once, ascending."""
        return tuple(sorted({*self.voters, *self.outgoing, *self.learners}))

    def contains(self, member: i64) -> bool:
        """Return whether `member` belongs to the group in any part."""
        return member in self.voters or member in self.outgoing or member in self.learners

    def is_voter(self, member: i64) -> bool:
        """Return whether `member` counts in either electorate."""
        return member in self.voters or member in self.outgoing

    def encode(self) -> bytes:
        """Return the bytes that `decode_membership` reads."""
        ids = (*self.voters, *self.outgoing, *self.learners)
        lead = _LEAD.pack(_VERSION, len(self.voters), len(self.outgoing), len(self.learners))
        return lead + b"".join([member.to_bytes(8, "little") for member in ids])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Membership)
            and self.voters == other.voters
            and self.outgoing == other.outgoing
            and self.learners == other.learners
        )

    def __hash__(self) -> int:
        return hash((self.voters, self.outgoing, self.learners))

    def __repr__(self) -> str:
        parts = [_list(self.voters)]
        if self.outgoing:
            parts.append(f"outgoing {_list(self.outgoing)}")
        if self.learners:
            parts.append(f"learners {_list(self.learners)}")
        return " ".join(parts)


NOBODY: Final = Membership(())  # what a member that waits to be admitted knows of its group


def decode_membership(data: bytes) -> Membership:
    """Read an encoded membership.

    Raises ValueError: the bytes are not one, of this version.
    """
    try:
        version, voters, outgoing, learners = _LEAD.unpack_from(data)
    except error as problem:
        raise ValueError(f"membership of {len(data)} bytes is too short") from problem
    total: int = voters + outgoing + learners
    if version != _VERSION:
        raise ValueError(f"membership version {version} is not known to this release")
    if len(data) != _LEAD.size + 8 * total or total > 3 * GROUP_MEMBERS_MAX:
        raise ValueError(f"membership of {total} ids has {len(data)} bytes")
    start: int = _LEAD.size
    ids = [int.from_bytes(data[at : at + 8], "little") for at in range(start, start + 8 * total, 8)]
    return Membership(
        tuple(ids[:voters]), tuple(ids[voters + outgoing :]), tuple(ids[voters : voters + outgoing])
    )


def _list(members: tuple[int, ...]) -> str:
    return ",".join([name_of(member) for member in members])


def name_of(member: i64) -> str:
    """Return a member id as people read it: its node, and its generation unless that is 0."""
    generation: i64 = member >> NODE_BITS
    node: i64 = member_node(member)
    return f"{node}.{generation:x}" if generation else str(node)


def can_do_without(members: Membership, node: i64) -> bool:
    """Return whether a group could continue without the members of a node.

    That takes a majority of the voters on other nodes, of both electorates while it is joint. True
    for a membership of nobody: of such a group nothing was promised here.
    """
    for electorate in (members.voters, members.outgoing):
        others = [member for member in electorate if member_node(member) != node]
        if electorate and 2 * len(others) <= len(electorate):
            return False
    return True
