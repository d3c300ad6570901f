"""States of queues that have nothing: no message, session, group or archive.

Those of the same version and settings differ in three numbers only. So thousands of idle queues
share a few states, and each has these numbers of its own.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.messages.settings import QueueSettings, encode_settings
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.model.limits import BLANK_STATES_MAX

_KNOWN: Final[dict[bytes, QueueState]] = {}  # by the CONFIGURE that makes it, without stamp


def blank(version: i64, settings: QueueSettings) -> QueueState:
    """Return the state of a queue that has nothing, not shared."""
    state = QueueState()
    state.version = version
    state.settings = settings
    return state


def may_have_nothing(state: QueueState) -> bool:
    """Return whether a look at the whole state may find that it has nothing; quickly.

    It never has where its version does not know all its settings: others share by what it knows.
    """
    return not (
        state.held_count > 0
        or state.sessions
        or state.ready.watched
        or state.ready.purged
        or state.seen.seen
        or state.publishers.known
        or state.archived.since_ms > 0
        or state.leases.epochs > 0
        or encode_settings(state.settings, state.version) != encode_settings(state.settings)
    )


def shared(version: i64, settings: QueueSettings) -> QueueState:
    """Return the one state, not to be changed, of all queues with these that have nothing."""
    key = encode_configure(version, settings)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= BLANK_STATES_MAX:
            _KNOWN.clear()
        found = _KNOWN[key] = blank(version, settings)
    return found


def configured(version: i64, command: bytes) -> QueueState | None:
    """Return the shared state, where it is known, that a CONFIGURE makes of one of a version."""
    found = _KNOWN.get(command)
    return found if found is not None and found.version >= version else None


NEW_STATE: Final = blank(1, QueueSettings())  # of queues that were not configured yet
