"""A queue in which every list is a list and every move a search, to compare the machine with."""

from __future__ import annotations

from tests.broker.core import naive_archive as na
from tests.broker.core.naive_leases import NaiveLeases
from tests.broker.core.naive_parts import (
    Message,
    Receiver,
    Session,
    Told,
    property_block,
    read_properties,
)

from headrace_broker.core.queue.command import command as c
from headrace_broker.core.queue.command.archive_command import ArchiveCommand
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import Acquire, Configure, Forget, Tick
from headrace_broker.core.queue.command.lease_command import LeaseCommand
from headrace_broker.core.queue.messages import effect as e
from headrace_broker.model.session import session_boot, session_node


class NaiveQueue(NaiveLeases):
    """Carries out commands."""

    # Commands

    def apply(self, index: int, data: bytes) -> Told:
        told = Told()
        command = decode_command(data)
        if isinstance(command, c.Malformed) or not self.knows(command):
            told.answers.append(("rejected",))
            return told
        users = self.users()
        self.now = max(self.now, c.stamp_of(data))
        if not isinstance(command, Tick):
            self.expire_front(told)
        name = "do_" + type(command).__name__.lower()
        self.fresh: dict[tuple[int, int], tuple[int, int]] = {}
        if isinstance(command, c.Enqueue):
            self.enqueue(index, data, command, told)
        elif isinstance(command, c.Control):
            self.control(command, told)
        elif isinstance(command, LeaseCommand):
            self.do_lease_command(command, told)
        elif isinstance(command, ArchiveCommand):
            self.do_archive_command(command, min(self.rows, default=self.next_row), told)
        else:
            getattr(self, name)(command, told)
        self.dispatch(told)
        self.drop_excess(told)
        self.judge(self.fresh, told)
        if isinstance(command, c.Enqueue) and ("gap" not in [a[0] for a in told.answers]):
            for session, seq in self.deferred.values():
                if session == command.session and seq >= command.seq:
                    told.deferred.setdefault(session, set()).add(seq)
        if users and not self.users():
            told.answers.append(("unused",))
        return told

    def knows(self, command: c.Command) -> bool:
        later = (Tick, Acquire, Forget, c.Remove)
        named = isinstance(command, c.Enqueue) and command.named is not None
        if self.version < 5 and isinstance(command, c.SetPrefetch):
            return False
        if self.version < 4 and isinstance(command, ArchiveCommand):
            return False
        if self.version < 3 and (named or isinstance(command, LeaseCommand)):
            return False
        return self.version > 1 or not isinstance(command, later)

    def users(self) -> int:
        return sum(r.state in ("attached", "detached") for r in self.receivers.values())

    def do_configure(self, command: Configure, told: Told) -> None:
        if command.version > 5:
            told.answers.append(("rejected",))
            return
        self.version = max(self.version, int(command.version))
        self.settings = command.settings
        if self.settings.archive and not self.archive_since:
            self.archive_since = self.now
        if not self.settings.archive:
            for message in self.everything():
                message.first = 0 if message.acquired else message.first
        self.line = []
        self.choose()
        for number in self.sessions:
            for place in [p for p in self.receivers if p[0] == number]:
                self.join(place)

    def do_tick(self, _command: Tick, told: Told) -> None:
        self.drop([m for m in self.waiting if m.expired(self.now)], e.REASON_EXPIRED, told)
        due = [m for m in self.delayed if m.due <= self.now]
        for message in sorted(due, key=lambda m: (m.due, m.number)):
            self.delayed.remove(message)
            if message.acquired:
                self.make_available(message)
                continue
            message.number, self.next = self.next, self.next + 1
            message.arrived, message.due = message.due, 0
            self.arrive(message)
        for number in list(self.sessions):
            for receiver in [r for p, r in list(self.receivers.items()) if p[0] == number]:
                self.end_overdue(receiver, told)
        self.end_due_leases(told)

    def end_overdue(self, receiver: Receiver, told: Told) -> None:
        timeout = receiver.timeout or self.settings.consumer_timeout_ms
        if timeout <= 0 or not receiver.held:
            return
        oldest = receiver.held[min(receiver.held)][1]
        if oldest + timeout > self.now:
            return
        if receiver.place[1]:
            self.retire(receiver, "cancelled")
        self.release(receiver, False, told)
        self.tidy(receiver)
        if self.active is None:
            self.choose()
        told.answers.append(("timed out", *receiver.place))

    def do_acquire(self, command: Acquire, told: Told) -> None:
        place = (int(command.session), int(command.consumer))
        receiver = self.receivers.get(place)
        if receiver is None or not receiver.filtered:
            return
        served = self.served(place)
        for number in command.ids:
            message = self.find(number)
            if message is None:
                continue
            if message.expired(self.now - 1) or not served or receiver.credit() == 0:
                self.waiting.remove(message)  # taken out and put back: a value that has
                self.wait(message)  # no other message comes last for that
                continue
            if self.owner(message) in (None, place):
                self.hand(place, message, told)

    def do_forget(self, command: Forget, _told: Told) -> None:
        for number in command.ids:
            if number in self.dead:
                message, reason = self.dead.pop(number)
                self.keep(message, na.DEAD_LETTERED + reason)

    def do_close(self, command: c.Close, told: Told) -> None:
        released = self.forget(int(command.session), True, told)
        told.answers.append(("controlled", command.session, 0, 0, released))

    def forget(self, number: int, failed: bool, told: Told) -> int:
        released = 0
        for receiver in [r for p, r in self.receivers.items() if p[0] == number]:
            self.retire(receiver, "cancelled")
            released += self.release(receiver, failed, told)
        for place in [p for p in self.receivers if p[0] == number]:
            del self.receivers[place]
        self.sessions.pop(number, None)
        if self.active is None or self.active[0] == number:
            self.active = None
            self.choose()
        return released

    def do_nodedown(self, command: c.NodeDown, told: Told) -> None:
        for number in list(self.sessions):
            if session_node(number) != command.node:
                continue
            if command.boot_keep and session_boot(number) != command.boot_keep:
                self.forget(number, False, told)
            if command.boot_keep:
                continue
            for receiver in [r for p, r in list(self.receivers.items()) if p[0] == number]:
                self.release(receiver, False, told)
                if receiver.state == "attached":
                    self.retire(receiver, "detached")
                    told.answers.append(("detached", *receiver.place))
                self.tidy(receiver)

    def enqueue(self, index: int, data: bytes, command: c.Enqueue, told: Told) -> None:
        number, count = int(command.session), int(command.sizes.count)
        session = self.sessions.get(number, Session())
        last = int(command.seq) + count - 1
        if command.seq > session.published + 1:
            told.answers.append(("gap", number, e.LANE_PUBLISH, session.published + 1))
            return
        if last <= session.published:
            again = [r for r in session.refusals[-8:] if r[1] >= command.seq]
            told.answers += [("refused", number, *refusal) for refusal in again]
            told.answers.append(("enqueued", number, session.published))
            return
        self.sessions[number] = session
        skip = session.published + 1 - int(command.seq)
        session.published = last
        if command.named is not None and self.fences(command.named):
            self.note(command.named, 0, 0)
            session.refusals.append((int(command.seq) + skip, last, e.REFUSED_FENCED))
            told.answers.append(("refused", number, *session.refusals[-1]))
            told.answers.append(("enqueued", number, last))
            return
        batch = data[command.batch_offset :]
        had, start = self.had(command.named), skip
        while had and skip < count and had[skip]:
            skip += 1
        stop = self.admit(batch, command, skip) if skip < count else count
        if command.named is not None:
            self.note(command.named, start, stop)
        if skip == count:
            told.answers.append(("enqueued", number, last))
            return
        if stop < count:
            why = e.REFUSED_NO_CONSUMER if command.now else e.REFUSED_OVERFLOW
            session.refusals.append((int(command.seq) + stop, last, why))
            told.answers.append(("refused", number, *session.refusals[-1]))
        told.answers.append(("enqueued", number, last))
        if command.patient and not command.now:
            self.fresh = self.above(index, command, skip, stop)
        base, self.next = self.next - skip, self.next + count - skip
        for position in [at for at in range(skip, stop) if not had or not had[at]]:
            byte_count = int(command.sizes.byte_count(position))
            message = Message(base + position, index, position, byte_count, self.now)
            self.place(message, batch, position)
        lettered = self.settings.overflow == 2 and self.settings.dead_letter > 0
        if lettered and not command.now:
            refused = [at for at in range(stop, count) if not had or not had[at]]
            told.dead |= {("once", e.REASON_MAXLEN, index, at) for at in refused}

    def above(
        self, index: int, command: c.Enqueue, skip: int, stop: int
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """The messages of a batch that come to a saturated queue or take it above its marks."""
        found = {}
        extra, byte_count = 0, 0
        everything, s = self.everything(), self.settings
        for position in range(skip, stop):
            extra, byte_count = extra + 1, byte_count + int(command.sizes.byte_count(position))
            over = 0 < s.high_watermark < len(everything) + extra
            over |= 0 < s.high_watermark_bytes < sum(m.byte_count for m in everything) + byte_count
            if over or self.saturated:
                found[index, position] = (int(command.session), int(command.seq) + position)
        return found

    def delay(self, batch: bytes, position: int) -> int:
        if self.version < 2:
            return 0
        return max(read_properties(property_block(batch, position))[2].get("x-delay", 0), 0)

    def admit(self, batch: bytes, command: c.Enqueue, skip: int) -> int:
        count, settings = int(command.sizes.count), self.settings
        if command.now:
            free = 0 if self.waiting else sum(self.receivers[p].credit() for p in self.line)
            stop = min(count, skip + free)
            late = [at for at in range(skip, stop) if self.delay(batch, at)]
            return late[0] if late else stop
        most, most_bytes = settings.max_length, settings.max_length_bytes
        if settings.overflow == 0 or (most < 0 and most_bytes < 0):
            self.refusing = False
            return count
        everything = [*self.waiting, *self.delayed, *(m for m, _ in self.dead.values())]
        length, byte_count = len(everything), sum(m.byte_count for m in everything)
        if self.refusing:
            if (most >= 0 and length > int(most) * 0.8) or (
                most_bytes >= 0 and byte_count > int(most_bytes) * 0.8
            ):
                return skip
            self.refusing = False
        for position in range(skip, count):
            if 0 <= most <= length or 0 <= most_bytes <= byte_count:
                self.refusing = True
                return position
            length, byte_count = length + 1, byte_count + int(command.sizes.byte_count(position))
        return count

    def place(self, message: Message, batch: bytes, position: int) -> None:
        settings = self.settings
        message.ttl = int(settings.message_ttl_ms)
        if self.version < 2:
            self.arrive(message)
            return
        priority, own, headers = read_properties(property_block(batch, position))
        name = headers.get("x-deduplication-header")
        if settings.deduplicate and name is not None and not self.is_new(name):
            return
        if own >= 0 and (message.ttl < 0 or own < message.ttl):
            message.ttl = own
        message.priority = min(max(priority, 0), int(settings.priority_max))
        for kind, header in (("last", settings.last_value_key), ("group", settings.group_key)):
            if header and header.decode() in headers:
                message.kind, message.key = kind, headers[header.decode()]
        fair = settings.fairness_key.decode()
        if fair in headers and not settings.last_value_key and not settings.group_key:
            message.kind = "fair"
            message.line = b"Fl" + headers[fair].to_bytes(8, "big", signed=True)
        delay = self.delay(batch, position)
        if delay:
            message.due = self.now + delay
            self.delayed.append(message)
        else:
            self.arrive(message)

    def is_new(self, name: int) -> bool:
        keep = self.settings.dedup_ms
        if keep >= 0:
            self.seen = {n: t for n, t in self.seen.items() if t + keep > self.now}
        if name in self.seen:
            return False
        self.seen[name] = self.now
        while len(self.seen) > self.settings.dedup_count:
            self.seen.pop(next(iter(self.seen)))
        return True

    def control(self, command: c.Control, told: Told) -> None:
        number, seq = int(command.session), int(command.seq)
        session = self.sessions.get(number, Session())
        if seq > session.controlled + 1:
            told.answers.append(("gap", number, e.LANE_CONTROL, session.controlled + 1))
            return
        if seq <= session.controlled:
            recent = sorted(session.answers)[-8:]
            status, count, delivery = session.answers[seq] if seq in recent else (0, 0, 0)
            if isinstance(command, c.Get):
                getter = self.receivers.get((number, 0))
                held = getter.held.get(delivery) if getter else None
                self.tell_got(number, seq, held[0] if held else None, delivery, told)
            else:
                told.answers.append(("controlled", number, seq, status, count))
            return
        self.sessions[number] = session
        session.controlled = seq
        if isinstance(command, c.Get):
            self.get(number, seq, int(command.message_id), told)
            return
        status, count = getattr(self, "on_" + type(command).__name__.lower())(command, told)
        if not isinstance(command, c.Settle) and (status or count):
            session.answers[seq] = (status, count, 0)
        told.answers.append(("controlled", number, seq, status, count))

    def tell_got(
        self, number: int, seq: int, message: Message | None, delivery: int, told: Told
    ) -> None:
        got = (message.entry, message.position, message.acquired) if message else None
        delivered = delivery if message else 0
        told.answers.append(("got", number, seq, got, delivered, len(self.waiting)))

    def get(self, number: int, seq: int, wanted: int, told: Told) -> None:
        place = (number, 0)
        message = self.find(wanted) if wanted else self.first_for(place)
        if message is not None and message.expired(self.now - 1):
            self.waiting.remove(message)
            self.wait(message)
            message = None
        if message is None or (wanted and self.owner(message) not in (None, place)):
            self.tell_got(number, seq, None, 0, told)
            return
        if place not in self.receivers:
            self.receivers[place] = Receiver(place, state="getter")
        delivery = self.hand(place, message, told)
        self.sessions[number].answers[seq] = (0, 0, delivery)
        self.tell_got(number, seq, message, delivery, told)

    def on_settle(self, command: c.Settle, told: Told) -> tuple[int, int]:
        settled = 0
        for item in command.items:
            receiver = self.receivers.get((int(command.session), int(item.consumer)))
            if receiver is None:
                continue
            numbers = [n for n in receiver.held if item.first <= n <= item.last]
            messages = [receiver.held.pop(n)[0] for n in numbers]
            settled += len(messages)
            if item.operation == c.REJECT:
                self.bury(messages, e.REASON_REJECTED, told)
            for message in messages:
                if item.operation == c.ACCEPT:
                    self.keep(message, na.ACKED)
                elif item.operation != c.REJECT:
                    self.give_back(message, item.operation == c.MODIFY_FAILED, told)
            if self.active is not None:
                self.choose()
            self.join(receiver.place)
            self.tidy(receiver)
        return 0, settled

    def on_attach(self, command: c.Attach, _told: Told) -> tuple[int, int]:
        place = (int(command.session), int(command.consumer))
        known = self.receivers.get(place)
        if known is not None and known.state != "detached":
            return e.STATUS_ALREADY, 0
        attached = [r for r in self.receivers.values() if r.state == "attached"]
        others = attached or self.leased() > 0
        if any(r.exclusive for r in attached) or (command.exclusive and others):
            return e.STATUS_EXCLUSIVE_IN_USE, 0
        receiver = known or Receiver(place)
        self.receivers[place] = receiver
        receiver.prefetch, receiver.byte_count = int(command.prefetch), int(command.prefetch_bytes)
        receiver.exclusive, receiver.filtered = command.exclusive, command.filtered
        receiver.priority, receiver.timeout = int(command.priority), int(command.timeout_ms)
        receiver.state = "attached"
        self.turns += 1
        receiver.turn = self.turns
        self.choose()
        self.join(place)
        return 0, 0

    def on_setprefetch(self, command: c.SetPrefetch, _told: Told) -> tuple[int, int]:
        for number, prefetch in command.items:
            receiver = self.receivers.get((int(command.session), number))
            if receiver is None or receiver.state not in ("attached", "detached"):
                continue
            receiver.prefetch = prefetch
            if receiver.place in self.line and receiver.credit() == 0:
                self.line.remove(receiver.place)
            self.join(receiver.place)
        return 0, 0

    def on_cancel(self, command: c.Cancel, _told: Told) -> tuple[int, int]:
        receiver = self.receivers.get((int(command.session), int(command.consumer)))
        if receiver is None or command.consumer == 0:
            return 0, 0
        left = len(receiver.held)
        self.retire(receiver, "cancelled")
        self.tidy(receiver)
        return 0, left

    def on_purge(self, _command: c.Purge, _told: Told) -> tuple[int, int]:
        count = len(self.waiting) + len(self.delayed)
        for message in [*self.waiting, *self.delayed]:
            self.keep(message, na.PURGED)
        self.waiting, self.delayed = [], []
        return 0, count

    def on_remove(self, command: c.Remove, _told: Told) -> tuple[int, int]:
        before = len(self.waiting) + len(self.delayed)
        for message in [*self.waiting, *self.delayed]:
            if message.number in command.ids:
                self.keep(message, na.REMOVED)
        self.waiting = [m for m in self.waiting if m.number not in command.ids]
        self.delayed = [m for m in self.delayed if m.number not in command.ids]
        return 0, before - len(self.waiting) - len(self.delayed)
