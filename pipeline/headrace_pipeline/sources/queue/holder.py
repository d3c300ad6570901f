"""Group of the driver: it opens it, takes leases, renews and settles them."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace_client import error as client_error
from headrace_client.blocking import LeaseGroup
from headrace_client.lease_value import HELD, GroupState, Leased, LeaseState
from headrace_pipeline.error import FencedError, PipelineError
from headrace_pipeline.limits import (
    LEASE_BYTES_MAX,
    LEASE_MESSAGES_MAX,
    LEASES_MAX,
    NODE_WAIT_SECONDS,
    RENEWAL_END_SECONDS,
)
from headrace_pipeline.sources.queue.plan import Room

log = logging.getLogger(__name__)

TOO_MANY_LEASES: Final = "TOO_MANY_LEASES"


class Holder:
    """Owner of a group, from the first call on; it renews the group's leases.

    A thread of its own puts the deadline off until `stop`, at a third of the time to live. It ends
    when somebody else has opened the group; the next method that is called says so.
    """

    def __init__(self, group: LeaseGroup, where: str, ttl_s: float) -> None:
        self._group = group  # for which nobody works here yet
        self._where = where  # it is, for people
        self._ttl_s = ttl_s  # after which messages go back when nothing is heard
        self._request_id = str(uuid.uuid4())
        self._lock = threading.Lock()
        self._state: GroupState | None = None
        self._told: set[int] = set()  # leases that are gone, as the log says already
        self._limit = ""  # what brokers said when they leased no more, if they did so last
        self._failure: PipelineError | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def epoch(self) -> int:
        """Under which it works."""
        return self.state().epoch

    def state(self) -> GroupState:
        """Return the group as it was told last; opens it.

        Raises:
            PipelineError: somebody else works for it, or it is no more.
            HeadraceError: brokers refuse it, or do not answer.
        """
        if self._failure is not None:
            raise self._failure
        if self._state is None:
            with self._refusals():
                opened = self._group.open(
                    self._request_id, self._ttl_s, timeout_s=NODE_WAIT_SECONDS
                )
            log.info("%s: opened under epoch %d", self._where, opened.epoch)
            self._note(opened)
            name = f"renewal of {self._where}"
            self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
            self._thread.start()
        assert self._state is not None
        return self._state

    @property
    def limit(self) -> str:
        """Limit that kept brokers from granting the last lease; "" for none."""
        return self._limit

    def leases(self) -> tuple[LeaseState, ...]:
        """Return leases that are held, or gone and not settled; ascending."""
        return self.state().leases

    def take(self, room: Room) -> Leased | None:
        """Take messages as the next lease, None where nothing is ready or no more may be leased."""
        number = self.state().next_lease
        messages = min(room.rows, LEASE_MESSAGES_MAX)
        byte_count = min(room.byte_count, LEASE_BYTES_MAX)
        try:
            with self._refusals():
                leased = self._group.lease(
                    number, messages, byte_count, ttl_s=self._ttl_s, timeout_s=NODE_WAIT_SECONDS
                )
        except client_error.ExhaustedError as error:
            if error.reason != TOO_MANY_LEASES:
                raise
            self._limit = str(error)
            return None
        self._limit = ""
        self._note(leased.group)
        return leased if leased.messages else None

    def settle(self, up_to: int) -> None:
        """Accept the messages of leases up to a number, unless that is done."""
        if up_to <= self.state().settled:
            return
        with self._refusals():
            settled = self._group.settle(up_to, timeout_s=NODE_WAIT_SECONDS)
        log.debug("%s: settled up to lease %d", self._where, up_to)
        self._note(settled.group, settled.gone)

    def stop(self) -> None:
        """Stop renewing; held messages return after their time to live.

        A renewal that no broker answers is left behind, and is the last one.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join(RENEWAL_END_SECONDS)

    def _keep(self) -> None:
        while not self._ended.wait(self._ttl_s / 3):
            try:
                with self._refusals():
                    state = self._group.renew(self._ttl_s, timeout_s=self._ttl_s * 2 / 3)
                self._note(state)
            except PipelineError as error:
                log.error("%s", error)
                self._failure = error
                return
            except client_error.ClosedError:
                return
            except client_error.HeadraceError as error:
                text = "%s: what it holds could not be renewed, and is tried again: %s"
                log.warning(text, self._where, error)

    def _note(self, state: GroupState, gone: tuple[LeaseState, ...] = ()) -> None:
        """Remember how the group is, and tell of leases that are gone, each once."""
        with self._lock:
            old = self._state
            # Answers may overtake each other; those of an older one are no news.
            if old is None or (state.next_lease, state.settled) >= (old.next_lease, old.settled):
                self._state = state
            news = [
                lease
                for lease in (*gone, *state.leases)
                if lease.state != HELD and lease.lease not in self._told
            ]
            self._told.update(lease.lease for lease in news)
            oldest = state.settled - LEASES_MAX  # what is older nobody tells of any more
            self._told = {number for number in self._told if number > oldest}
        for lease in news:
            text = "lease %d of %s has %s: %d messages (ids %s) went back and come again"
            ids = lease.message_id_text
            log.warning(text, lease.lease, self._where, lease.state, lease.messages, ids)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Explain what to do when the group has another owner.

        Raises:
            FencedError: somebody else works for it.
            PipelineError: it is no more.
        """
        try:
            yield
        except client_error.FencedError as error:
            raise FencedError(
                f"{self._where}: another query has opened it since, and goes on where this one "
                "was; a group is one query's: stop one of them, or give it a group of its own"
            ) from error
        except client_error.UnknownGroupError as error:
            raise PipelineError(
                f"{self._where}: it was closed, or the queue was declared anew, while the query "
                "ran: what it held went back to the queue; start the query again, with a new "
                "checkpoint location"
            ) from error
