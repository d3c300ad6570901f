"""Registry of what runs by a permission, judged again when the catalog changes.

Consumers, streams, sessions and the like stand here from their beginning to their end, on the node
where they run. A change of the user, or of a permission of the user, has those looked at that it
may matter to: each asks `catalog.access` the same as when it began, and ends with the refusal if
that is the answer now. Whatever the client does or does not do, plays no part in it.

The judgement comes after all that one turn of the loop applies, and is spread over turns: somebody
with thousands of consumers must not keep the node from serving others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, final

from headrace_broker.catalog.event import (
    Event,
    PermissionChanged,
    TopicPermissionChanged,
    UserChanged,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.limits import JUDGE_TURN_US
from headrace_broker.model.reply_code import CONNECTION_FORCED, AmqpError

ANYWHERE: Final = ""  # the vhost of what changes in all vhosts may matter to


@final
class PermissionWatch:
    """Work of a user that needs a permission.

    Args:
        user: whose it is.
        vhost: where it runs, or ANYWHERE.
        judge: asks again for what it needs; raises AmqpError where that is refused.
        end: ends it with the error that says why. It is not called twice, and not from within
            `PermissionWatches.enter`.
        epoch: `CatalogView.session_epoch` as of the log-in; None for what no session has to last
            for.
    """

    __slots__ = ("due", "end", "epoch", "gone", "judge", "user", "vhost")

    def __init__(
        self,
        user: str,
        vhost: str,
        judge: Callable[[], None],
        end: Callable[[AmqpError], None],
        epoch: int | None = None,
    ) -> None:
        self.user = user
        self.vhost = vhost
        self.judge = judge
        self.end = end
        self.epoch = epoch
        self.due = False
        self.gone = False  # its user was deleted, whoever has the name now


def needs_nothing() -> None:
    """Allow a session that needs no more than its user."""


@final
class PermissionWatches:
    """All that runs for users on this node.

    Args:
        view: the catalog; what answers from memory has to have heard of a change before this does.
        later: has something called in a later turn of the loop.
        clock_us: microseconds of a clock that never goes back.
    """

    def __init__(
        self,
        view: CatalogView,
        later: Callable[[Callable[[], None]], object],
        clock_us: Callable[[], int],
    ) -> None:
        self._view = view
        self._guarded = view.guarded
        self._later = later
        self._clock_us = clock_us
        self._by_user: dict[str, dict[PermissionWatch, None]] = {}
        self._due: deque[PermissionWatch] = deque()
        self._armed = False

    def __len__(self) -> int:
        return sum(len(each) for each in self._by_user.values())

    def epoch(self, user: str) -> int:
        """Return `CatalogView.session_epoch`."""
        return self._view.session_epoch(user)

    def enter(self, standing: PermissionWatch) -> None:
        """Begin to judge something.

        Raises:
            AmqpError: it may not run, or not any more; it does not stand here.
        """
        self._check(standing)
        self._by_user.setdefault(standing.user, {})[standing] = None

    def leave(self, standing: PermissionWatch) -> None:
        """Forget ended work; unknown work is ignored."""
        standing.due = False
        of_user = self._by_user.get(standing.user, {})
        if of_user.pop(standing, standing) is None and not of_user:
            del self._by_user[standing.user]

    def problem(self, standing: PermissionWatch) -> AmqpError | None:
        """Return why the work would end now, None if it may continue."""
        try:
            self._check(standing)
        except AmqpError as error:
            return taken_away(error)
        return None

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow changes of the catalog."""
        places: dict[str, set[str]] = {}
        for event in events:
            if isinstance(event, UserChanged):
                places.setdefault(event.name, set()).add(ANYWHERE)
                if event.user is None:
                    for standing in self._by_user.get(event.name, ()):
                        standing.gone = True
            elif isinstance(event, PermissionChanged | TopicPermissionChanged):
                places.setdefault(event.user, set()).add(event.vhost)
        if self._view.guarded != self._guarded:
            self._guarded = self._view.guarded
            places = {user: {ANYWHERE} for user in self._by_user}
        for user, vhosts in places.items():
            self._suspect(user, vhosts)
        self._arm()

    def _suspect(self, user: str, vhosts: set[str]) -> None:
        for standing in self._by_user.get(user, ()):
            if standing.due:
                continue
            if ANYWHERE in vhosts or standing.vhost == ANYWHERE or standing.vhost in vhosts:
                standing.due = True
                self._due.append(standing)

    def _arm(self) -> None:
        if self._due and not self._armed:
            self._armed = True
            self._later(self._judge_some)

    def _judge_some(self) -> None:
        """Check what is due, for a limited time."""
        self._armed = False
        until_us = self._clock_us() + JUDGE_TURN_US
        try:
            while self._due:
                standing = self._due.popleft()
                if standing.due:  # else it has ended meanwhile
                    standing.due = False
                    self._judge(standing)
                if self._clock_us() >= until_us:
                    break
        finally:
            self._arm()  # a fault at one must not spare those behind it

    def _judge(self, standing: PermissionWatch) -> None:
        error = self.problem(standing)
        if error is not None:
            self.leave(standing)
            standing.end(error)

    def _check(self, standing: PermissionWatch) -> None:
        name = standing.user
        if standing.gone or self._view.user(name) is None:
            raise AmqpError(CONNECTION_FORCED, f"user '{name}' was deleted")
        if standing.epoch not in (None, self._view.session_epoch(name)):
            text = f"sessions of user '{name}' from before were ended by a change of the user"
            raise AmqpError(CONNECTION_FORCED, f"{text}: log in again")
        standing.judge()


def taken_away(error: AmqpError) -> AmqpError:
    """Return a refusal with the text for a right that was withdrawn."""
    if error.code == CONNECTION_FORCED:
        return error
    what = "tag" if error.text.startswith("tags: ") else "permission"
    return AmqpError(error.code, f"{error.text}: the {what} was taken away")
