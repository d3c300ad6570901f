"""Histories of things of one kind, as long as something moves in them."""

from __future__ import annotations

from collections.abc import Container, Hashable
from operator import lt
from typing import Generic, TypeVar

from headrace_broker.flow.history import FINE_MS, History
from headrace_broker.runtime.rpc.question import Stats

K = TypeVar("K", bound=Hashable)

Figures = tuple[int, ...]


class Histories(Generic[K]):
    """Keeps the histories of those that moved last; idle ones cost a look. Figures begin at 0."""

    def __init__(self, width: int, kept_max: int, only_grow: bool = False) -> None:
        self._nothing: Figures = (0,) * width
        self._kept_max = kept_max  # most histories
        self._only_grow = only_grow  # one with a smaller figure is of another thing
        self._histories: dict[K, History] = {}  # the one that changed last at the end
        self._quiet: dict[K, Figures] = {}  # where those stand that moved once

    def __len__(self) -> int:
        return len(self._histories)

    def sample(self, key: K, figures: Figures, now_ms: int) -> None:
        """Note where the figures of one stand; every FINE_MS."""
        if self._only_grow and self._began_anew(key, figures):
            self._histories.pop(key, None)
            self._quiet.pop(key, None)
        history = self._histories.get(key)
        if history is not None:
            changed_ms = history.changed_ms
            history.sample(figures, now_ms)
            if history.changed_ms != changed_ms:
                del self._histories[key]
                self._histories[key] = history
            elif history.is_over(now_ms):
                del self._histories[key]
                self._quiet[key] = figures
            return
        before = self._quiet.get(key, self._nothing)
        if figures == before:
            return
        if len(self._histories) >= self._kept_max:
            calmest = next(iter(self._histories))
            self._quiet[calmest] = self._histories.pop(calmest).last()[-1][1:]
        self._quiet.pop(key, None)
        history = self._histories[key] = History(before, now_ms - FINE_MS)
        history.sample(figures, now_ms)

    def _began_anew(self, key: K, figures: Figures) -> bool:
        history = self._histories.get(key)
        before = history.last()[-1][1:] if history is not None else self._quiet.get(key)
        return before is not None and any(map(lt, figures, before))

    def forget_others(self, known: Container[K]) -> None:
        """Forget all but those that are there."""
        for key in [key for key in self._histories if key not in known]:
            del self._histories[key]
        for key in [key for key in self._quiet if key not in known]:
            del self._quiet[key]

    def keys(self) -> list[K]:
        """Return those that have a history."""
        return list(self._histories)

    def find(self, key: K) -> History | None:
        """Return the history of one, None where nothing has moved for long."""
        return self._histories.get(key)


def samples(history: History | None, question: Stats) -> list[Figures]:
    """Return the samples that a question asks for."""
    if history is None or not question.age_ms:
        return []
    return history.samples(question.age_ms, question.step_ms)
