"""Objects that a node still holds once nothing is under way: what grows with the work done leaks.

All objects of the broker and of `raftlog` that can be reached from a node are counted by their
class, and the elements of all containers by the attribute that they are in. Nothing is named that
is to be empty, so that what is new is counted, too. Attributes and containers are followed, but not
functions, bound methods and tasks.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, Final

COUNTED: Final = ("headrace_broker.", "headrace_raftlog.")  # packages whose objects are looked into
CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque, array)
ATOMS: Final = (str, bytes, int, float, type(None))

REMAINS_MAX: Final = 192  # of a kind at a node; `churn` opens some 280 sessions at each
# Kinds with a bound of their own, and where it is; runs stay below it, so it is not checked here.
BOUNDED: Final = {
    "Account": "CAUSES_REMEMBERED_MAX",
    "Batch": "PAGE_BATCHES",
    "Batch.offsets": "WRITE_BATCH_BYTES_MAX",  # of the one batch that the log's collector reads
    "BatchSizes": "PAGE_BATCHES",
    "Cause": "CAUSES_REMEMBERED_MAX",
    "Charges._ended": "CAUSES_REMEMBERED_MAX",
    "DiskReads._pieces": "READ_PIECES_MAX",
    "Entry": "log.cache_bytes",
    "EntryCache._settled": "log.cache_bytes",
    "FairLanes._rings": "a fixed number for each queue",
    "Origin.slices": "BROUGHT_SLICES_MAX",
    "Page.batches": "PAGE_BATCHES",
    "QueueMeter._durations": "a fixed number for each queue",
    "RateHistory._counts": "a fixed number for each queue",
    "RateHistory._times": "a fixed number for each queue",
    "ReadCache._entries": "READ_CACHE_BYTES_MAX",
    "ReadyList._slots": "a fixed number for each queue",
    "Slice": "BROUGHT_SLICES_MAX",
    "SparseIndex.indexes": "log.snapshot_every_bytes",
    "SparseIndex.lengths": "log.snapshot_every_bytes",
    "SparseIndex.locations": "log.snapshot_every_bytes",
    "StoredGroup.lengths": "log.snapshot_every_bytes",
    "StoredGroup.locations": "log.snapshot_every_bytes",
    "StoredGroup.recent": "log.cache_bytes",
    "_Written": "log.cache_bytes",
}
# Likewise, where so many processes ask for changes of the catalog that runs get near to it.
REQUEST_WINDOWS: Final = {"SeenRequests.above": "CATALOG_REQUEST_WINDOW"}


def remains(root: Any) -> Counter[str]:
    """Count what can be reached from an object, which is not changed."""
    counts: Counter[str] = Counter()
    seen: dict[int, Any] = {}  # by identity, which holds as long as the object is kept
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        thing, where = waiting.pop()
        if isinstance(thing, ATOMS) or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, CONTAINERS):
            counts[where] += len(thing)
            if not isinstance(thing, array):
                waiting += ((each, where) for each in _elements(thing))
        elif type(thing).__module__.startswith(COUNTED):
            counts[type(thing).__name__] += 1
            waiting += _attributes(thing)
    return counts


def too_many(counts: Counter[str], besides: Collection[str] = ()) -> dict[str, int]:
    """Return the kinds with more objects than any run leaves behind.

    Args:
        counts: as `remains` returns them.
        besides: kinds that are left out, as those of BOUNDED are.
    """
    return {
        kind: count
        for kind, count in counts.items()
        if count > REMAINS_MAX and kind not in BOUNDED and kind not in besides
    }


def _elements(thing: Any) -> Iterator[Any]:
    yield from thing
    if isinstance(thing, dict):
        yield from thing.values()


def _attributes(thing: Any) -> Iterator[tuple[Any, str]]:
    kind: Any = type(thing)
    values = dict(getattr(thing, "__dict__", {}))
    for name in _slots(kind):
        if hasattr(thing, name):
            values[name] = getattr(thing, name)
    for name, value in values.items():
        yield value, f"{kind.__name__}.{name}"


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """Return attributes that are in no `__dict__`: slots, and those of compiled classes."""
    names: dict[str, None] = {}
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            names[name] = None
        for name in vars(each).get("__mypyc_attrs__", ()):
            names[name] = None
    return tuple(name for name in names if not name.startswith("__"))
