"""The secret by which nodes of a cluster know each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JoinSecrets:
    """The secrets that count at a node."""

    # at least one. This node proves itself by the first; others may use any of them, so that a
    # secret can be replaced while nodes run.
    accepted: tuple[bytes, ...]
    # refuse nodes without a proof; otherwise only those whose proof is wrong, so that the nodes of
    # a running cluster can be given a secret one after the other
    required: bool = True
