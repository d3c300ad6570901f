"""A bug, and how it takes the place of the code that is right.

A bug replaces a function of an interpreted module; compiled code does not look for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """One bug."""

    name: str
    text: str  # what is wrong
    profile: str  # whose runs are to find it
    seeds: int  # within which they are to
    apply: Callable[[], None]
    is_found: bool = True  # False as long as runs cannot find it
    first: int = 0  # seed of these, where few find it

    @property
    def places(self) -> range:
        """Seeds that are run."""
        return range(self.first, self.first + self.seeds)


def put(owner: Any, name: str, made: Callable[..., Any]) -> None:
    """Replace a method of a class, or a function of one module; `made` gets what was there."""
    setattr(owner, name, made(getattr(owner, name)))


def put_all(original: Any, made: Callable[..., Any]) -> None:
    """Replace a function wherever a module of production has imported it."""
    new = made(original)
    for name, module in list(sys.modules.items()):
        if name.startswith(("headrace_raftlog", "headrace_broker")):
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, new)


def after_restore(read: Callable[[bytes], Any], change: Callable[[Any], None]) -> None:
    """Change each state that a function reads from a snapshot."""

    def made(original: Any) -> Any:
        def changed(data: bytes) -> Any:
            state = original(data)
            change(state)
            return state

        return changed

    put_all(read, made)
