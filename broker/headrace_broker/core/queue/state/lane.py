"""Available messages of one priority that wait in one line, in the order of their ids."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.budget import Budget
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.live_entries import LiveEntries
from headrace_broker.core.queue.state.loose import LooseMessages
from headrace_broker.core.queue.state.page import PAGE_BATCHES, Page


@final
class Lane:
    """Batches never acquired and messages on their own."""

    def __init__(self, priority: i64, key: bytes, entries: LiveEntries) -> None:
        self.priority = priority  # of all its messages
        self.key = key  # of its messages in batches, b"" for those that are not kept apart
        self.count: i64 = 0  # of messages, in batches and loose
        self.byte_count: i64 = 0  # of their bodies
        self.pages: deque[Page] = deque()  # of batches, oldest first; none is empty
        self.loose = LooseMessages()  # the others
        self.expires_ms: i64 = 0  # nothing expires before, 0 when nothing does; may be too early
        self.behind: Lane | None = None  # the lane that has its turn after this one; see `ring`
        self.ahead: Lane | None = None  # the one that has it before
        self.listed_ms: i64 = 0  # its place among lanes looked at for expiry, 0 for none
        self._entries = entries
        self._spare: Page | None = Page()  # for when a page is wanted
        self._opened: Page | None = None  # the one that was opened last, behind the first

    # In

    def append(self, batch: Batch) -> None:
        """Put a batch behind everything; its ids are the highest."""
        pages = self.pages
        if not pages:
            pages.append(self._new_page())
        elif pages[-1].size >= PAGE_BATCHES:
            if len(pages) > 1:
                pages[-1].pack()
            pages.append(self._new_page())
        page = pages[-1]
        page.open()
        page.append(batch)
        self.count += batch.stop - batch.next
        self.byte_count += batch.byte_count
        self._note_expiry(batch.expires_ms)

    def add(self, message: Acquired) -> None:
        """Put a message where it belongs by its id."""
        self.loose.add(message)
        self.count += 1
        self.byte_count += message.byte_count
        self._note_expiry(message.expires_ms)

    def put_page(self, page: Page) -> None:
        """Append a page from a snapshot; the reader sets `count` and `byte_count`."""
        self.pages.append(page)
        self._note_expiry(page.expires_ms)

    def put_back(self, message: Acquired) -> None:
        """Put a loose message that `count` and `byte_count` hold already where it belongs."""
        self.loose.add(message)
        self._note_expiry(message.expires_ms)

    def _note_expiry(self, expires_ms: i64) -> None:
        if expires_ms > 0 and (self.expires_ms == 0 or expires_ms < self.expires_ms):
            self.expires_ms = expires_ms

    # Out

    def take(self, wanted: i64, into: list[Acquired], now_ms: i64) -> i64:
        """Move up to `wanted` messages to `into`, the oldest first; return how many.

        It ends before a message that should not wait any more at `now_ms`.
        """
        left = wanted
        while left > 0:
            if 0 < self.expires_ms < now_ms and self.is_overdue(now_ms):
                break
            loose_id: i64 = self.loose.first_id() if self.loose.messages else 0
            if self.pages:
                page = self.pages[0]
                page.open()
                batch = page.head_batch()
                first = batch.first_id
                if loose_id == 0 or first < loose_id:
                    most = left if loose_id == 0 else min(left, loose_id - first)
                    left -= self._take_new(page, batch, most, into)
                    continue
            message = self.loose.pop(loose_id)
            assert message is not None, "the count says that there is one"
            self.byte_count -= message.byte_count
            into.append(message)
            left -= 1
            self.count -= 1
        return wanted - left

    def _take_new(self, page: Page, batch: Batch, wanted: i64, into: list[Acquired]) -> i64:
        """Take up to `wanted` messages of the head batch; return how many."""
        self._entries.open(batch)
        start = batch.next
        stop = min(start + wanted, batch.stop)
        byte_count: i64 = 0
        for position in range(start, stop):
            message = batch.message(position, self.priority, self.key)
            byte_count += message.byte_count
            into.append(message)
        self.byte_count -= byte_count
        batch.next = stop
        page.count -= stop - start
        self.count -= stop - start
        if page.count == 0:
            self._spare = self.pages.popleft()
        return stop - start

    def _new_page(self) -> Page:
        """Return an empty page: in a short queue mostly the one that was emptied last."""
        page = self._spare
        if page is None:
            return Page()
        self._spare = None
        page.clear()
        return page

    def pop(self, message_id: i64) -> Acquired | None:
        """Take the message with an id out; None where it does not wait here."""
        message = self.loose.pop(message_id)
        if message is None:
            message = self._pop_new(message_id)
        if message is not None:
            self.count -= 1
            self.byte_count -= message.byte_count
        return message

    def _pop_new(self, message_id: i64) -> Acquired | None:
        at = self._page_of(message_id)
        if at < 0:
            return None
        page = self.pages[at]
        self._open(page)
        found = page.find(message_id)
        if found < 0:
            return None
        batch = page.batches[found]
        position = message_id - batch.id_base
        self._entries.open(batch)
        message = batch.message(position, self.priority, self.key)
        page.cut(found, position)
        if page.count == 0:
            del self.pages[at]
        return message

    def _open(self, page: Page) -> None:
        """Open any page; of those between the first and the last one it alone stays open."""
        if not page.packed:
            return
        page.open()
        before = self._opened
        self._opened = page
        if before is None or before is page or before.packed or before.count == 0:
            return
        if before is not self.pages[0] and before is not self.pages[-1]:
            before.pack()

    def clear(self, into: list[Page]) -> list[Acquired]:
        """Move the pages to the end of `into`, and return the single messages."""
        into.extend(self.pages)
        self.pages.clear()
        self._opened = None
        loose = self.loose.in_order()
        self.loose.clear()
        self.count = 0
        self.byte_count = 0
        self.expires_ms = 0
        return loose

    # Time

    def is_overdue(self, now_ms: i64) -> bool:
        """Return whether the first message expired before `now_ms`."""
        if self.count == 0 or not 0 < self.expires_ms < now_ms:
            return False
        return 0 < self._head_expiry() < now_ms

    def take_expired_head(self, now_ms: i64, budget: Budget, into: list[Acquired]) -> None:
        """Take expired messages at the front of the lane, within the budget."""
        while self.count > 0 and not budget.spent():
            expires = self._head_expiry()
            if expires == 0 or expires > now_ms:
                return
            self.take(1, into, 0)
            budget.spend(into[-1].byte_count)

    def _head_expiry(self) -> i64:
        loose_id: i64 = self.loose.first_id() if self.loose.messages else 0
        if self.pages:
            page = self.pages[0]
            page.open()
            batch = page.head_batch()
            if loose_id == 0 or batch.first_id < loose_id:
                return batch.expires_ms
        return self.loose.messages[loose_id].expires_ms

    def take_expired(self, now_ms: i64, budget: Budget, into: list[Acquired]) -> None:
        """Take expired messages anywhere, within the budget."""
        if self.expires_ms == 0 or self.expires_ms > now_ms:
            return
        while not budget.spent():
            message = self.loose.pop_expired(now_ms)
            if message is None:
                break
            self._let_go(message, budget, into)
        for page in list(self.pages):
            if budget.spent():
                break
            if 0 < page.expires_ms <= now_ms:
                self._expire_page(page, now_ms, budget, into)
        self._look_for_expiry()

    def _let_go(self, message: Acquired, budget: Budget, into: list[Acquired]) -> None:
        self.count -= 1
        self.byte_count -= message.byte_count
        budget.spend(message.byte_count)
        into.append(message)

    def _expire_page(self, page: Page, now_ms: i64, budget: Budget, into: list[Acquired]) -> None:
        self._open(page)
        soonest: i64 = 0
        for batch in page.batches[page.head :]:
            expires = batch.expires_ms
            if expires == 0 or batch.next == batch.stop:
                continue
            if expires <= now_ms:
                self._entries.open(batch)
                while batch.next < batch.stop and not budget.spent():
                    message = batch.message(batch.next, self.priority, self.key)
                    batch.next += 1
                    page.count -= 1
                    self._let_go(message, budget, into)
                if batch.next == batch.stop:
                    continue
            if soonest == 0 or expires < soonest:
                soonest = expires
        page.expires_ms = soonest
        if page.count == 0:
            self.pages.remove(page)

    def _look_for_expiry(self) -> None:
        self.expires_ms = 0
        for page in self.pages:
            self._note_expiry(page.expires_ms)
        self._note_expiry(self.loose.expires_ms())

    # Looking

    def spans(self, message_id: i64) -> bool:
        """Return whether a message may wait here, without a search."""
        if message_id in self.loose.messages:
            return True
        pages = self.pages
        return len(pages) > 0 and pages[0].first_id <= message_id <= pages[-1].last_id

    def first_id(self) -> i64:
        """Return the lowest id; there must be one."""
        loose_id: i64 = self.loose.first_id() if self.loose.messages else 0
        if self.pages:
            page = self.pages[0]
            page.open()
            first = page.head_batch().first_id
            if loose_id == 0 or first < loose_id:
                return first
        return loose_id

    def oldest_ms(self) -> i64:
        """Return when the first message arrived; there must be one."""
        loose_id: i64 = self.loose.first_id() if self.loose.messages else 0
        if self.pages:
            page = self.pages[0]
            page.open()
            batch = page.head_batch()
            if loose_id == 0 or batch.first_id < loose_id:
                return batch.arrived_ms
        return self.loose.messages[loose_id].arrived_ms

    def browse(self, after_id: i64, limit: i64, into: list[Acquired]) -> None:
        """Add up to `limit` messages with ids above `after_id`, by their ids; nothing changes."""
        found = self.loose.after(after_id, limit)
        room = limit
        pages = self.pages
        at = self._first_page_after(after_id)
        while room > 0 and at < len(pages):
            for batch in pages[at].waiting():
                start = max(batch.next, after_id + 1 - batch.id_base)
                for position in range(start, min(batch.stop, start + room)):
                    found.append(batch.message(position, self.priority, self.key))
                    room -= 1
            at += 1
        found.sort(key=_id)
        into.extend(found[:limit])

    def _page_of(self, message_id: i64) -> i64:
        """Return the index of the only page that may hold a message, -1 for none."""
        at = self._first_page_after(message_id - 1)
        return at if at < len(self.pages) and self.pages[at].first_id <= message_id else -1

    def _first_page_after(self, message_id: i64) -> i64:
        """Return the index of the first page with ids above one; their number for none."""
        pages = self.pages
        low: i64 = 0
        high: i64 = len(pages)
        while low < high:
            middle = (low + high) // 2
            if pages[middle].last_id <= message_id:
                low = middle + 1
            else:
                high = middle
        return low


def _id(message: Acquired) -> int:
    return message.message_id
