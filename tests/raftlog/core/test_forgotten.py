"""A leader that counts on entries which this member does not have any more."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.errors import ContradictedError, ForgottenError
from headrace_raftlog.model.message import APPEND, HEARTBEAT, SNAPSHOT


def test_commit_beyond_the_log_says_that_entries_were_forgotten(host):
    member = host()
    with pytest.raises(ForgottenError, match="entry 7 was acknowledged by this member"):
        member.step(HEARTBEAT, 2, 1, commit=7)
    assert member.core.commit_index == 0


def test_commit_within_the_log_is_taken(host):
    member = host()
    member.step(HEARTBEAT, 2, 1, commit=0)
    assert member.core.commit_index == 0


def _with_committed(host):
    """Return a member that follows member 2 in term 1 and has entries 1 to 3 committed."""
    member = host(terms=(1, 1, 1))
    member.step(HEARTBEAT, 2, 1, index=3, log_term=1, commit=3)
    assert member.core.commit_index == 3
    return member


@pytest.mark.parametrize("kind", [APPEND, HEARTBEAT, SNAPSHOT])
def test_leader_that_names_another_entry_than_is_committed_is_not_answered(host, kind):
    member = _with_committed(host)
    with pytest.raises(ContradictedError, match="entry 2 is committed here in term 1"):
        member.step(kind, 3, 2, index=2, log_term=2, commit=0)
    assert member.core.last_index == 3


def test_leader_that_replaces_a_committed_entry_is_not_followed(host):
    member = _with_committed(host)
    entry = Entry(4, 2, ENTRY_NORMAL, b"y")
    with pytest.raises(ContradictedError, match="entry 3 is committed here"):
        member.step(APPEND, 3, 2, index=3, log_term=2, entries=[entry], commit=0)
    assert member.core.log.term_at(3) == 1


@pytest.mark.parametrize("kind", [APPEND, HEARTBEAT, SNAPSHOT])
def test_delayed_message_that_agrees_is_answered(host, kind):
    member = _with_committed(host)
    member.step(kind, 2, 1, index=2, log_term=1, commit=0)
    assert member.core.commit_index == 3
