"""Judges a history: what clients were promised, against what they got.

Rules, each with a name that violations carry:

lost: a confirmed message was delivered at least once by the end, when all queues were drained, be
    it as a dead letter; of a queue of delayed messages, those that were not are counted there.
phantom: what is delivered was published, to that queue or to one whose dead letters go there, with
    that body; no more messages are delayed than were published.
unflagged-duplicate: at most one delivery of a message comes without the redelivered flag, but for
    dead letters, which come at least once.
order: of what one publisher's channel published to one queue, deliveries without the flag reach
    each consumer in the order of publishing.
register: looks at the catalog, and its changes, are linearizable for each name.
left-over: the queues are empty at the end, as drained.

`python -m e2e.chaos.checker history.json` judges a history that a run left behind.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.chaos.history import Delivery, History, Operation, Outcome, Publish
from e2e.chaos.linearizability import Reads, first_unexplained

EXAMPLES_MAX: Final = 5  # violations of one rule that are spelled out
OPERATIONS_SHOWN: Final = 8  # operations before the one that nothing explains


class Violation(NamedTuple):
    """A broken promise."""

    rule: str
    text: str


def check(history: History, reads: Reads = Reads.STRICT) -> list[Violation]:
    """Return everything that is wrong with a run whose queues were drained at its end."""
    letters = {*history.dead_letters.values()}
    found = [
        *check_lost(history),
        *check_phantoms(history.publishes, history.deliveries, history.dead_letters),
        *check_duplicates([each for each in history.deliveries if each.queue not in letters]),
        *check_order(
            history.publishes, [each for each in history.deliveries if each.queue not in letters]
        ),
        *check_registers(history.operations, reads),
    ]
    return _shortened(found)


def check_lost(history: History) -> Iterator[Violation]:
    """Find confirmed messages that were neither received nor delayed."""
    delivered = {each.id for each in history.deliveries}
    missing = [each for each in history.publishes if each.id not in delivered]
    for queue, count in history.delayed.items():
        outcomes = Counter(each.outcome for each in missing if each.queue == queue)
        confirmed = outcomes[Outcome.CONFIRMED]
        unknown = outcomes[Outcome.UNKNOWN] + outcomes[Outcome.REJECTED]  # a nack may come too late
        if count < confirmed:
            yield Violation("lost", f"{queue} delays {count} of {confirmed} confirmed messages")
        if count > confirmed + unknown:
            text = f"{queue} delays {count} messages, {confirmed + unknown} at most were published"
            yield Violation("phantom", text)
    for each in missing:
        if each.outcome is Outcome.CONFIRMED and each.queue not in history.delayed:
            yield Violation("lost", f"{each.id} to {each.queue} was confirmed and never delivered")


def check_phantoms(
    publishes: Sequence[Publish], deliveries: Sequence[Delivery], dead_letters: Mapping[str, str]
) -> Iterator[Violation]:
    """Find deliveries that were never published, or not there."""
    queues = {each.id: each.queue for each in publishes}
    for each in deliveries:
        queue = queues.get(each.id)
        if each.queue not in (queue, dead_letters.get(queue or "")):
            origin = "was never published" if queue is None else f"was published to {queue}"
            yield Violation("phantom", f"{each.id} came from {each.queue} but {origin}")


def check_duplicates(deliveries: Sequence[Delivery]) -> Iterator[Violation]:
    """Find messages that came more than once as if for the first time."""
    first_times = Counter(each.id for each in deliveries if not each.redelivered)
    for message, count in first_times.items():
        if count > 1:
            text = f"{message} was delivered {count} times without the redelivered flag"
            yield Violation("unflagged-duplicate", text)


def check_order(
    publishes: Sequence[Publish], deliveries: Sequence[Delivery]
) -> Iterator[Violation]:
    """Find first deliveries that overtook each other."""
    published = {each.id: each for each in publishes}
    last: dict[tuple[str, str, str, int], Publish] = {}
    for each in deliveries:
        origin = published.get(each.id)
        if origin is None or each.redelivered:
            continue
        stream = (each.consumer, each.queue, origin.publisher, origin.channel)
        before = last.get(stream)
        if before is not None and before.number > origin.number:
            text = f"{each.consumer} got {origin.id} after {before.id}, from {each.queue}"
            yield Violation("order", text)
        last[stream] = origin


def check_registers(operations: Sequence[Operation], reads: Reads) -> Iterator[Violation]:
    """Find names whose looks and changes cannot be put into one order."""
    names: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        names[each.name].append(each)
    for name, its in names.items():
        wrong = first_unexplained(its, reads=reads.of(its))
        if wrong is not None:
            yield Violation("register", _story(name, its, wrong))


def _story(name: str, operations: Sequence[Operation], wrong: Operation) -> str:
    """Tell an unexplained answer with what happened before it."""
    end = wrong.completed or 0.0
    shown = sorted(
        (each for each in operations if each.invoked <= end), key=lambda each: each.invoked
    )
    start = wrong.invoked
    lines = [f"{name}: no order explains the last of these (ms around its request)"]
    changes = [each for each in shown if each.write and each is not wrong]
    for each in [*changes[-OPERATIONS_SHOWN:], wrong]:
        what = {True: "create", False: "remove"} if each.write else {True: "there", False: "absent"}
        until = "?" if each.completed is None else f"{(each.completed - start) * 1000:.1f}"
        verb = "" if each.write else "look: "
        lines.append(
            f"    {each.node} {(each.invoked - start) * 1000:10.1f} .. {until:>8}  "
            f"{verb}{what[each.value]}"
        )
    return "\n".join(lines)


def _shortened(found: Sequence[Violation]) -> list[Violation]:
    """Keep some examples of each rule and count the rest."""
    kept: list[Violation] = []
    for rule, count in Counter(each.rule for each in found).items():
        kept += [each for each in found if each.rule == rule][:EXAMPLES_MAX]
        if count > EXAMPLES_MAX:
            kept.append(Violation(rule, f"... {count} violations in all"))
    return kept


def summary(history: History) -> str:
    """Return the sizes of a history, in one line."""
    outcomes = Counter(each.outcome for each in history.publishes)
    flagged = sum(each.redelivered for each in history.deliveries)
    unknown = sum(each.completed is None for each in history.operations)
    names = len({each.name for each in history.operations})
    return (
        f"{len(history.publishes)} published ({outcomes[Outcome.CONFIRMED]} confirmed, "
        f"{outcomes[Outcome.REJECTED]} rejected, {outcomes[Outcome.UNKNOWN]} unknown), "
        f"{len(history.deliveries)} deliveries ({flagged} flagged), "
        f"{len(history.operations)} catalog operations on {names} names ({unknown} unknown)"
    )


def main(arguments: Sequence[str]) -> int:
    """Judge the file named first, with the strictness of reads named second, if at all."""
    history = History.load(Path(arguments[0]))
    violations = check(history, Reads(arguments[1]) if len(arguments) > 1 else Reads.STRICT)
    print(summary(history))
    for each in violations:
        print(f"{each.rule}: {each.text}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
