"""A leader that counts on entries which this member does not have any more."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.errors import ForgottenError
from headrace_raftlog.model.message import HEARTBEAT


def test_commit_beyond_the_log_says_that_entries_were_forgotten(host):
    member = host()
    with pytest.raises(ForgottenError, match="entry 7 was acknowledged by this member"):
        member.step(HEARTBEAT, 2, 1, commit=7)
    assert member.core.commit_index == 0


def test_commit_within_the_log_is_taken(host):
    member = host()
    member.step(HEARTBEAT, 2, 1, commit=0)
    assert member.core.commit_index == 0
