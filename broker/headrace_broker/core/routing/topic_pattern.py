"""Binding patterns of topic exchanges in their normal form.

Words are what stands between dots; an empty word is a word, but an empty routing key has none, as
in RabbitMQ. Source: AMQP 0-9-1, section 3.1.3.3.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"


def split_words(routing_key: str) -> list[str]:
    """Return the words of a routing key or pattern."""
    if not routing_key:
        return []
    return routing_key.split(".")


@final
class TopicPattern:
    """A pattern as single words and the places where any number of further words may stand.

    `#.#` means the same as `#`, and `#.*` the same as `*.#`: each run of wildcards becomes its
    `*`, then one `#` if it had any. So a pattern has at most one `#` more than it has words.
    """

    def __init__(self, routing_key: str) -> None:
        self.words: list[str] = []  # the single words in order, `*` among them
        self.open_after: list[bool] = [False]  # whether `#` stands behind the first i words
        self.open_count: i64 = 0  # places where `#` stands
        self.star_count: i64 = 0  # `*` among the words
        open_here = False
        for word in split_words(routing_key):
            if word == ANY_WORDS:
                open_here = True
                continue
            if word == ONE_WORD:
                self.star_count += 1
            elif open_here:
                self._open()
                open_here = False
            self.words.append(word)
            self.open_after.append(False)
        if open_here:
            self._open()
        self.text: str = self._normal_form()  # the same for patterns that take the same keys

    def _open(self) -> None:
        self.open_after[-1] = True
        self.open_count += 1

    def _normal_form(self) -> str:
        parts: list[str] = [ANY_WORDS] if self.open_after[0] else []
        for position, word in enumerate(self.words):
            parts.append(word)
            if self.open_after[position + 1]:
                parts.append(ANY_WORDS)
        return ".".join(parts)

    @property
    def opens_inside(self) -> bool:
        """True if `#` stands anywhere but at the end."""
        return self.open_count > 1 or (self.open_count == 1 and not self.open_after[-1])
