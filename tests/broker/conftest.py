"""Certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.harness.authority import Authority, Pair


class Certificates:
    """What TLS tests show to each other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.server: Pair = self.authority.sign("/CN=localhost", "server")
        self.client: Pair = self.authority.sign("/O=mill, race/CN=guest", "client")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority with a server and a client named guest, and a stranger."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
