"""/api/log-level."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def root_level() -> Iterator[None]:
    """Put the level back as it was."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def test_the_level_is_set_shown_and_recorded(api, caplog):
    caplog.set_level("INFO", "headrace.audit")
    for level in ("debug", "error"):
        assert api("PUT", "/api/log-level", {"level": level}) == (204, None)
        assert api("GET", "/api/log-level", user="mon") == (200, {"node": "n1", "level": level})
        assert logging.getLogger().level == getattr(logging, level.upper())
    lines = [each.getMessage() for each in caplog.records if each.name == "headrace.audit"]
    assert len(lines) == 2  # whatever the level is
    assert "user=guest" in lines[1]
    assert lines[1].endswith("action=set_log_level target=n1 outcome=done level=error")


def test_the_level_is_for_administrators_and_one_that_there_is(refused):
    refused(403, "PUT", "/api/log-level", {"level": "debug"}, user="mon")
    refused(403, "GET", "/api/log-level", user="alice")
    assert refused(400, "PUT", "/api/log-level", {"level": "all"}).startswith("level:")
    assert logging.getLogger().level != logging.DEBUG
