"""The context of a call by somebody who has not logged in."""

from __future__ import annotations


class Stranger:
    """The context of a call that nobody has logged in for."""

    def __init__(self, address: str) -> None:
        self.address = address

    def peer(self) -> str:
        return f"ipv4:{self.address}:5001"

    async def abort(self, code, *details) -> None:
        raise ConnectionRefusedError(code)
