"""The context of a call without a log-in."""

from __future__ import annotations


class Stranger:
    """The context of a call without a log-in."""

    def __init__(self, address: str) -> None:
        self.address = address

    def peer(self) -> str:
        return f"ipv4:{self.address}:5001"

    async def abort(self, code, *details) -> None:
        raise ConnectionRefusedError(code)
