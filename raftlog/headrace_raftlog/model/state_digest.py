"""The digest of a state machine at one index of its log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDigest:
    """Digest of one member's state behind a checkpoint."""

    member: int  # member id
    index: int  # log index of the checkpoint
    version: str  # of code and state machine; digests of two versions say nothing of each other
    digest: bytes  # hash of the whole state; "" and b"" where the application has none
