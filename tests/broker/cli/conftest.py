"""A node's API that answers as a test wants it, for all commands."""

from __future__ import annotations

import pytest
from tests.broker.cli.fake_api import FakeApi

from headrace_broker.cli.session import progress, session


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Stands for every node; commands that wait look again at once."""
    fake = FakeApi()
    monkeypatch.setattr(session, "ApiClient", fake)
    monkeypatch.setattr(progress, "POLL_S", 0)
    for name in ("HEADRACE_API", "HEADRACE_API_USER", "HEADRACE_API_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return fake
