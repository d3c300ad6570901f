"""What health checks answer."""

from __future__ import annotations

from typing_extensions import TypedDict


class _State(TypedDict):
    status: str


class State(_State, total=False):
    """Whether all is well: `status` is "ok", or "failed" for a reason."""

    reason: str
