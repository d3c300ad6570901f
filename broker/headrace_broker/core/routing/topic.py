"""Topic exchanges: patterns of words with `*` for one word and `#` for any number of them.

Words are what stands between dots; an empty word is a word, but an empty routing key has none, as
in RabbitMQ. Source: AMQP 0-9-1, section 3.1.3.3.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.routing.matcher import Destination, Matcher, Subject, count_down, count_up
from headrace_broker.model.definition import Binding

ONE_WORD: Final = "*"
ANY_WORDS: Final = "#"


def split_words(routing_key: str) -> list[str]:
    """Return the words of a routing key or pattern."""
    if not routing_key:
        return []
    return routing_key.split(".")


@final
class TopicNode:
    """The bindings whose patterns begin with the same words.

    Attributes:
        number: tells it from the other nodes of its trie.
        repeats: whether it was reached by `#`, so that it also takes further words.
        children: next nodes by the pattern's next word, `*` and `#` among them.
        counts: bindings whose pattern ends here, per destination.
    """

    def __init__(self, number: i64, repeats: bool) -> None:
        self.number = number
        self.repeats = repeats
        self.children: dict[str, TopicNode] = {}
        self.counts: dict[Destination, int] = {}


@final
class TopicMatcher(Matcher):
    """A trie of patterns.

    Matching visits each pair (node, number of words taken) at most once, so a hostile pattern such
    as `#.#.#` costs nodes x words and no more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._root = TopicNode(0, False)
        self._next_number: i64 = 1

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        node = self._root
        for word in split_words(binding.routing_key):
            child = node.children.get(word)
            if child is None:
                child = TopicNode(self._next_number, word == ANY_WORDS)
                self._next_number += 1
                node.children[word] = child
            node = child
        count_up(node.counts, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding and the nodes that only it needed."""
        words = split_words(binding.routing_key)
        path = [self._root]
        for word in words:
            path.append(path[-1].children[word])
        count_down(path[-1].counts, destination)
        depth = len(words)
        while depth > 0 and not path[depth].counts and not path[depth].children:
            depth -= 1
            del path[depth].children[words[depth]]

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of all patterns that one of a message's routing keys fits."""
        for routing_key in subject.routing_keys:
            self._match(routing_key, found)

    def _match(self, routing_key: str, found: dict[Destination, None]) -> None:
        words = split_words(routing_key)
        count: i64 = len(words)
        nodes: list[TopicNode] = [self._root]
        taken: list[int] = [0]
        seen: set[int] = set()
        while nodes:
            node = nodes.pop()
            position: i64 = taken.pop()
            mark: i64 = node.number * (count + 1) + position
            if mark in seen:
                continue
            seen.add(mark)
            any_words = node.children.get(ANY_WORDS)
            if any_words is not None:
                nodes.append(any_words)
                taken.append(position)
            if position == count:
                for destination in node.counts:
                    found[destination] = None
                continue
            if node.repeats:
                nodes.append(node)
                taken.append(position + 1)
            # A word that is itself "*" or "#" finds the wildcard's node, which takes it as well.
            self._descend(node, words[position], position + 1, nodes, taken)
            self._descend(node, ONE_WORD, position + 1, nodes, taken)

    def _descend(
        self,
        node: TopicNode,
        word: str,
        position: i64,
        nodes: list[TopicNode],
        taken: list[int],
    ) -> None:
        child = node.children.get(word)
        if child is not None:
            nodes.append(child)
            taken.append(position)
