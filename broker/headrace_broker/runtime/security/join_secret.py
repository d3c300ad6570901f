"""The secrets by which nodes of a cluster know each other, as a file holds them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from headrace_broker.config.configuration import ClusterSection, ConfigError
from headrace_broker.model.limits import (
    JOIN_SECRET_BYTES_MIN,
    JOIN_SECRET_FILE_BYTES_MAX,
    JOIN_SECRETS_MAX,
)
from headrace_broker.runtime.security.tls import stamp
from headrace_raftlog.model.join_secret import JoinSecrets

log = logging.getLogger("headrace.security")


class JoinSecretFile:
    """Reads a node's join secrets, anew when the file changes.

    Raises ConfigError: it cannot be read, or holds something else; names key and rule.
    """

    def __init__(self, section: ClusterSection) -> None:
        self._path = section.join_secret_file
        self._required = section.join_secret_required
        # called when a secret no longer counts: all must prove themselves anew
        self.on_narrowed: Callable[[], None] = lambda: None
        self._stamp = stamp(self._path)
        self.secrets = self._load()  # for connections from now on
        if not self._required:
            log.warning(
                "cluster.join_secret_required is false: nodes without the join secret are let in; "
                "turn it on once all nodes have one"
            )

    def changed(self) -> bool:
        """Return whether the file is another one than the one that was read last."""
        return stamp(self._path) != self._stamp

    def renew(self) -> None:
        """Read the file again; ConfigError as at the beginning: everything stays as it was."""
        self._stamp = stamp(self._path)
        before, self.secrets = self.secrets, self._load()
        if not set(before.accepted) <= set(self.secrets.accepted):
            self.on_narrowed()

    def _load(self) -> JoinSecrets:
        key = f"cluster.join_secret_file: {self._path}"
        try:
            with Path(self._path).open("rb") as file:
                data = file.read(JOIN_SECRET_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{key}: cannot be read: {error.strerror}") from error
        lines = [line.strip() for line in data.split(b"\n")]
        found = tuple(dict.fromkeys(line for line in lines if line))
        short = [line for line in found if len(line) < JOIN_SECRET_BYTES_MIN]
        if len(data) > JOIN_SECRET_FILE_BYTES_MAX or short or not found:
            raise ConfigError(
                f"{key}: must hold a secret of {JOIN_SECRET_BYTES_MIN} bytes or more on a line, "
                f"{JOIN_SECRET_FILE_BYTES_MAX} bytes in all"
            )
        if len(found) > JOIN_SECRETS_MAX:
            raise ConfigError(
                f"{key}: holds {len(found)} secrets, and {JOIN_SECRETS_MAX} may count at once: the "
                "one to prove this node by, and on the next line another that is accepted"
            )
        return JoinSecrets(found, self._required)


def join_secret_file(section: ClusterSection) -> JoinSecretFile | None:
    """Return what the configuration names, None without; ConfigError as `JoinSecretFile`."""
    return JoinSecretFile(section) if section.join_secret_file else None
