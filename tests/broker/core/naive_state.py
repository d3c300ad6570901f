"""The state of the naive queue: lists, and searches through them."""

from __future__ import annotations

import zlib
from dataclasses import replace

from tests.broker.core import naive_archive as na
from tests.broker.core.naive_parts import Message, Place, Receiver, Session, Told

from headrace_broker.core.queue.messages import effect as e
from headrace_broker.core.queue.state.archive_row import outcome_of
from headrace_broker.model.limits import FAIRNESS_SHARED_LANES, FAIRNESS_VALUES_MAX


class NaiveState(na.NaiveArchive):
    """Messages and consumers, and the moves of which commands are made."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.next = 1
        self.turns = 0
        self.ring: list[tuple[int, bytes]] = []  # priorities and lines, next to have its turn first
        self.waiting: list[Message] = []
        self.delayed: list[Message] = []
        self.dead: dict[int, tuple[Message, int]] = {}
        self.seen: dict[int, int] = {}
        self.refusing = False
        self.sessions: dict[int, Session] = {}
        self.receivers: dict[Place, Receiver] = {}
        self.line: list[Place] = []
        self.active: Place | None = None
        self.saturated = False
        self.deferred: dict[tuple[int, int], tuple[int, int]] = {}  # place in the log -> publish

    # Messages

    def everything(self) -> list[Message]:
        held = [m for r in self.receivers.values() for m, _ in r.held.values()]
        kept = [m for m, _ in self.dead.values()]
        return [*self.waiting, *self.delayed, *held, *kept]

    def alive(self) -> set[int]:
        return {m.entry for m in self.everything()} | {row[0] for row in self.rows.values()}

    # Watermarks

    def marks(self) -> list[tuple[int, int, int]]:
        """Return content, high mark and low mark, of messages and of bytes."""
        everything, s = self.everything(), self.settings
        byte_count = sum(m.byte_count for m in everything)
        both = [
            (len(everything), int(s.high_watermark), int(s.low_watermark)),
            (byte_count, int(s.high_watermark_bytes), int(s.low_watermark_bytes)),
        ]
        return [mark for mark in both if mark[1] > 0]

    def judge(self, fresh: dict[tuple[int, int], tuple[int, int]], told: Told) -> None:
        """End a command that brought `fresh` messages above the high mark."""
        if self.saturated:
            self.saturated = any(held > low for held, _, low in self.marks())
        else:
            self.saturated = any(held > high for held, high, _ in self.marks())
        here = {(m.entry, m.position) for m in self.everything()} if self.saturated else set()
        for place in [place for place in self.deferred if place not in here]:
            session, seq = self.deferred.pop(place)
            if session in self.sessions:
                told.completed.setdefault(session, set()).add(seq)
        for place in [
            place for place in self.deferred if self.deferred[place][0] not in self.sessions
        ]:
            del self.deferred[place]
        self.deferred |= {place: publish for place, publish in fresh.items() if place in here}

    def grouped(self) -> list[Message]:
        return sorted((m for m in self.waiting if m.kind == "group"), key=lambda m: m.number)

    def in_line(self, place: tuple[int, bytes]) -> list[Message]:
        found = [m for m in self.waiting if m.kind != "group" and (m.priority, m.line) == place]
        return sorted(found, key=lambda m: m.number)

    def lines(self) -> list[tuple[int, bytes]]:
        """Return lanes in turn order: higher priorities first, the next in turn first."""
        there = {(m.priority, m.line) for m in self.waiting if m.kind != "group"}
        return sorted((place for place in self.ring if place in there), key=lambda p: -p[0])

    def next_plain(self) -> Message | None:
        lines = self.lines()
        return self.in_line(lines[0])[0] if lines else None

    def line_of(self, message: Message) -> bytes:
        """The line for a message; values beyond the bound are put together."""
        there = [place for place in self.lines() if place[1]]
        shared = b"H" + (zlib.crc32(message.line) % FAIRNESS_SHARED_LANES).to_bytes(2, "big")
        if (message.priority, message.line) in there:
            return message.line
        full = sum(line[:1] == b"F" for _, line in there) >= FAIRNESS_VALUES_MAX
        return shared if full or (message.priority, shared) in there else message.line

    def wait(self, message: Message) -> None:
        if message.kind != "group":
            self.ring = self.lines()
            message.line = self.line_of(message) if message.kind == "fair" else b""
            place = (message.priority, message.line)
            if place not in self.ring:
                self.ring.append(place)
        self.waiting.append(message)

    def owner(self, message: Message) -> Place | None:
        for place, receiver in self.receivers.items():
            for held, _ in receiver.held.values():
                if held.kind == "group" and message.kind == "group" and held.key == message.key:
                    return place
        return None

    def first_for(self, place: Place) -> Message | None:
        plain = self.next_plain()
        grouped = [m for m in self.grouped() if self.owner(m) in (None, place)]
        if plain and (plain.priority or not grouped or plain.number < grouped[0].number):
            self.ring.remove((plain.priority, plain.line))
            self.ring.append((plain.priority, plain.line))
            return plain
        return grouped[0] if grouped else None

    def find(self, number: int) -> Message | None:
        return next((m for m in self.waiting if m.number == number), None)

    def make_available(self, message: Message) -> None:
        if message.kind == "last" and self.same_value(message):
            self.keep(message, na.REPLACED)
            return  # a newer one waits
        self.wait(message)

    def same_value(self, message: Message) -> Message | None:
        for other in self.waiting:
            if message.kind == other.kind == "last" and message.key == other.key:
                return other
        return None

    def arrive(self, message: Message) -> None:
        old = self.same_value(message)
        if old is not None:
            self.waiting.remove(old)
            self.keep(old, na.REPLACED)
            message.number = old.number
        self.wait(message)

    def bury(self, messages: list[Message], reason: int, told: Told) -> None:
        mode = self.settings.dead_letter
        for message in messages:
            if mode == 1:
                told.dead.add(("once", reason, message.entry, message.position))
            elif mode == 2:
                told.dead.add(("kept", reason, message.entry, message.position))
                self.dead[message.number] = (message, reason)
            if mode < 2:
                self.keep(message, na.DEAD_LETTERED + reason if mode else int(outcome_of(reason)))

    def give_back(self, message: Message, failed: bool, told: Told) -> None:
        limit, settings = self.settings.delivery_limit, self.settings
        again = replace(
            message, acquired=message.acquired + 1, failed=message.failed + failed, due=0, taken=0
        )
        if not settings.archive:
            again.first = 0
        if failed and 0 <= limit < again.failed:
            self.bury([again], e.REASON_DELIVERY_LIMIT, told)
            return
        pause = 0
        if settings.retry_type in ((1, 2) if failed else (1, 3)):
            times = again.failed if failed else again.acquired
            pause = min(settings.retry_min_ms * times, settings.retry_max_ms)
        if pause:
            again.due = self.now + pause
            self.delayed.append(again)
        else:
            self.make_available(again)

    def expire_front(self, told: Told) -> None:
        gone = []
        for place in self.lines():
            for message in self.in_line(place):
                if not message.expired(self.now):
                    break
                gone.append(message)
        gone += [m for m in self.grouped() if m.expired(self.now)]
        self.drop(gone, e.REASON_EXPIRED, told)

    def is_overdue(self) -> bool:
        first = self.next_plain()
        looked_at = [*self.grouped(), *([first] if first else [])]
        return any(m.expired(self.now - 1) for m in looked_at)

    def drop(self, messages: list[Message], reason: int, told: Told) -> None:
        for message in messages:
            self.waiting.remove(message)
        self.bury(messages, reason, told)

    def drop_excess(self, told: Told) -> None:
        settings = self.settings
        while settings.overflow == 0:
            both = [*self.waiting, *self.delayed]
            many = 0 <= settings.max_length < len(both)
            large = 0 <= settings.max_length_bytes < sum(m.byte_count for m in both)
            if not (many or large) or not both:
                return
            if self.waiting:
                self.drop([self.least_wanted(many)], e.REASON_MAXLEN, told)
            else:
                first = min(self.delayed, key=lambda m: (m.due, m.number))
                self.delayed.remove(first)
                self.bury([first], e.REASON_MAXLEN, told)

    def least_wanted(self, many: bool) -> Message:
        lowest = min((place[0] for place in self.lines()), default=-1)
        if lowest < 0:
            return self.grouped()[0]
        lines = [self.in_line(place) for place in self.lines() if place[0] == lowest]
        sizes = {
            messages[0].line: len(messages) if many else sum(m.byte_count for m in messages)
            for messages in lines
        }
        return min(lines, key=lambda messages: (-sizes[messages[0].line], messages[0].line))[0]

    # Consumers

    def best(self) -> Place | None:
        attached = [r for r in self.receivers.values() if r.state == "attached"]
        if not attached:
            return None
        key = lambda r: (-r.priority, r.place != self.active, r.turn)  # noqa: E731
        return min(attached, key=key).place

    def served(self, place: Place) -> bool:
        if not self.settings.single_active:
            return True
        leased = any(p[0] == 0 and receiver.held for p, receiver in self.receivers.items())
        return place == self.active == self.best() and not leased

    def choose(self) -> None:
        if not self.settings.single_active:
            self.active = None
            return
        best = self.best()
        if self.active == best:
            if best is not None:
                self.join(best)
            return
        if self.active is not None:
            self.leave(self.active)
            if self.receivers[self.active].held:
                return
        self.active = best
        if best is not None:
            self.join(best)

    def busy(self) -> int:
        """Return the number of consumers without a filter that have their full prefetch."""
        places = [self.active] if self.settings.single_active else list(self.receivers)
        receivers = [self.receivers[place] for place in places if place is not None]
        return sum(r.state == "attached" and not r.filtered and not r.credit() for r in receivers)

    def leave(self, place: Place) -> None:
        if place in self.line:
            self.line.remove(place)

    def join(self, place: Place) -> None:
        receiver = self.receivers.get(place)
        if receiver is None or place in self.line or receiver.filtered:
            return
        if receiver.credit() > 0 and self.served(place):
            self.line.append(place)

    def retire(self, receiver: Receiver, state: str) -> None:
        self.leave(receiver.place)
        receiver.state = state
        if self.active == receiver.place:
            self.active = None
        self.choose()

    def release(self, receiver: Receiver, failed: bool, told: Told) -> int:
        held = [message for message, _ in receiver.held.values()]
        receiver.held.clear()
        for message in held:
            self.give_back(message, failed, told)
        return len(held)

    def tidy(self, receiver: Receiver) -> None:
        if receiver.state == "cancelled" and not receiver.held:
            self.receivers.pop(receiver.place, None)

    def hand(self, place: Place, message: Message, told: Told) -> int:
        receiver = self.receivers[place]
        self.waiting.remove(message)
        self.taken(message)
        receiver.given += 1
        receiver.held[receiver.given] = (message, self.now)
        if place[1]:
            told.delivered.setdefault(place, []).append(
                (receiver.given, message.entry, message.position, message.acquired, message.failed)
            )
        return receiver.given

    def taken(self, message: Message) -> None:
        message.taken = self.now
        if message.acquired == 0:
            message.first = self.now

    def dispatch(self, told: Told) -> None:
        passed = []
        while self.waiting and self.line:
            if self.is_overdue():
                self.expire_front(told)
                continue
            place = min(self.line, key=lambda p: (-self.receivers[p].priority, self.line.index(p)))
            self.line.remove(place)
            message = self.first_for(place)
            if message is None:
                passed.append(place)
                continue
            self.hand(place, message, told)
            if self.receivers[place].credit() > 0:
                self.line.append(place)
        self.line += passed
