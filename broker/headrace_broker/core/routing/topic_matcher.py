"""Topic exchanges: patterns of words with `*` for one word and `#` for any number of them."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.routing.matcher import Destination, Matcher, Subject, count_down, count_up
from headrace_broker.core.routing.topic_block import TopicBlock, TopicRow
from headrace_broker.core.routing.topic_pattern import ONE_WORD, TopicPattern
from headrace_broker.model.definition import Binding
from headrace_broker.model.limits import TOPIC_TREE_WORDS_MAX

NODE_STEPS: Final = 5  # of `Subject.work` for a look at one node


@final
class TopicNode:
    """The bindings whose patterns begin with the same words."""

    def __init__(self) -> None:
        self.children: dict[str, TopicNode] = {}  # by the pattern's next word, `*` among them
        self.counts: dict[Destination, int] = {}  # bindings that end here, per destination
        self.open_counts: dict[Destination, int] = {}  # those whose pattern ends here with `#`

    @property
    def is_empty(self) -> bool:
        """True while no binding needs it."""
        return not (self.children or self.counts or self.open_counts)


def in_tree(pattern: TopicPattern) -> bool:
    """Return whether a pattern is one that a walk down the tree finds in few steps."""
    if pattern.opens_inside:
        return False
    return pattern.star_count == 0 or len(pattern.words) <= TOPIC_TREE_WORDS_MAX


@final
class TopicMatcher(Matcher):
    """Patterns with few choices in a tree, the others in blocks.

    A walk down the tree comes by at most 2 ** (TOPIC_TREE_WORDS_MAX + 1) nodes and one for each
    further word, whatever the number of bindings. A block takes a few operations for each word. So
    the work for a routing key is bounded by its words times the blocks, of which an exchange has at
    most ROUTING_LOAD_MAX / (TOPIC_BLOCK_PLACES - PATTERN_PLACES_MAX) and one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._root = TopicNode()
        self._rows: dict[str, tuple[TopicRow, TopicBlock]] = {}
        self._blocks: dict[TopicBlock, None] = {}
        self._roomy: dict[TopicBlock, None] = {}
        self._destinations: dict[Destination, int] = {}

    def add(self, binding: Binding, destination: Destination) -> None:
        """Add a binding."""
        pattern = TopicPattern(binding.routing_key)
        if in_tree(pattern):
            self._add_to_tree(pattern, destination)
        else:
            self._add_to_block(pattern, destination)
        count_up(self._destinations, destination)

    def remove(self, binding: Binding, destination: Destination) -> None:
        """Remove a binding, and the nodes or the places that only it needed."""
        pattern = TopicPattern(binding.routing_key)
        if in_tree(pattern):
            self._remove_from_tree(pattern, destination)
        else:
            self._remove_from_block(pattern, destination)
        count_down(self._destinations, destination)

    def load_of(self, binding: Binding) -> int:
        """Return the places that a binding's pattern takes in a block, 0 for one in the tree."""
        pattern = TopicPattern(binding.routing_key)
        if in_tree(pattern) or pattern.text in self._rows:
            return 0
        return len(pattern.words) + 1

    def match(self, subject: Subject, found: dict[Destination, None]) -> None:
        """Find the destinations of all patterns that one of a message's routing keys fits."""
        for words in subject.words():
            if len(found) >= len(self._destinations):
                return
            self._walk(words, subject, found)
            for block in self._blocks:
                if len(found) >= len(self._destinations) or subject.is_spent(found):
                    return
                block.match(words, subject, found)

    # The tree

    def _add_to_tree(self, pattern: TopicPattern, destination: Destination) -> None:
        node = self._root
        for word in pattern.words:
            child = node.children.get(word)
            if child is None:
                child = TopicNode()
                node.children[word] = child
            node = child
        count_up(node.open_counts if pattern.open_count else node.counts, destination)

    def _remove_from_tree(self, pattern: TopicPattern, destination: Destination) -> None:
        path = [self._root]
        for word in pattern.words:
            path.append(path[-1].children[word])
        node = path[-1]
        count_down(node.open_counts if pattern.open_count else node.counts, destination)
        depth = len(pattern.words)
        while depth > 0 and path[depth].is_empty:
            depth -= 1
            del path[depth].children[pattern.words[depth]]

    def _walk(self, words: list[str], subject: Subject, found: dict[Destination, None]) -> None:
        count: i64 = len(words)
        nodes: list[TopicNode] = [self._root]
        taken: list[int] = [0]
        while nodes and not subject.is_spent(found):
            node = nodes.pop()
            position: i64 = taken.pop()
            subject.work += NODE_STEPS + len(node.open_counts)
            for destination in node.open_counts:
                found[destination] = None
            if position == count:
                subject.work += len(node.counts)
                for destination in node.counts:
                    found[destination] = None
                continue
            word = words[position]
            child = node.children.get(word)
            if child is not None:
                nodes.append(child)
                taken.append(int(position + 1))
            if word != ONE_WORD:  # else the wildcard's node was found just now
                child = node.children.get(ONE_WORD)
                if child is not None:
                    nodes.append(child)
                    taken.append(int(position + 1))

    # The blocks

    def _add_to_block(self, pattern: TopicPattern, destination: Destination) -> None:
        placed = self._rows.get(pattern.text)
        if placed is None:
            row = TopicRow(pattern)
            block = self._block_with_room()
            block.add(row)
            self._note_room(block)
            placed = (row, block)
            self._rows[pattern.text] = placed
            self.load += row.places
        count_up(placed[0].counts, destination)

    def _remove_from_block(self, pattern: TopicPattern, destination: Destination) -> None:
        row, block = self._rows[pattern.text]
        count_down(row.counts, destination)
        if row.counts:
            return
        del self._rows[pattern.text]
        self.load -= row.places
        block.remove(row)
        self._note_room(block)

    def _block_with_room(self) -> TopicBlock:
        for block in self._roomy:
            return block
        block = TopicBlock()
        self._blocks[block] = None
        return block

    def _note_room(self, block: TopicBlock) -> None:
        if block.is_empty:
            del self._blocks[block]
            self._roomy.pop(block, None)
        elif block.has_room:
            self._roomy[block] = None
        else:
            self._roomy.pop(block, None)
