"""Log-ins at the web page: kept by the node that they were made at, and known to the others.

Who is logged in shows a random token; its first part names the node that keeps the log-in, the
others ask that one. Nodes keep and exchange digests of tokens only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import User
from headrace_broker.model.limits import (
    PAGE_REMOTE_ASKED_MAX,
    PAGE_REMOTE_S,
    PAGE_SESSION_IDLE_S,
    PAGE_SESSION_S_MAX,
    PAGE_SESSIONS_MAX,
    PAGE_USER_SESSIONS_MAX,
)
from headrace_broker.runtime.inquiry import Inquiries, Login, NoAnswerError

TOKEN_BYTES: Final = 32  # random octets
TOKEN_CHARACTERS_MAX: Final = 64


class LoginRow(msgspec.Struct, frozen=True):
    """A log-in that counts.

    Attributes:
        user: the name.
        proof: a digest of what the user's password is checked by, so that another one ends it.
    """

    user: str
    proof: bytes


class _Kept:
    """A log-in of this node; times are seconds of a clock that never goes back."""

    def __init__(self, row: LoginRow, now: float) -> None:
        self.row = row
        self.opened = now
        self.used = now

    def is_over(self, now: float) -> bool:
        idle, age = now - self.used, now - self.opened
        return idle >= PAGE_SESSION_IDLE_S or age >= PAGE_SESSION_S_MAX


class PageLogins:
    """Opens, finds and ends log-ins.

    Args:
        node: this node's id.
        view: the catalog, for what is a user now.
        inquiries: by which other nodes are asked.
        clock: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        node: int,
        view: CatalogView,
        inquiries: Inquiries,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._view = view
        self._inquiries = inquiries
        self._clock = clock
        self._kept: dict[bytes, _Kept] = {}  # the one unused longest first
        self._heard: dict[bytes, tuple[LoginRow, float]] = {}  # of other nodes, and until when
        self._asking = 0
        inquiries.login_rows = self._rows

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, user: User) -> str:
        """Return the token of a new log-in; the user's password has been checked."""
        token = f"{self._node}.{secrets.token_urlsafe(TOKEN_BYTES)}"
        now = self._clock()
        for digest in [key for key, kept in self._kept.items() if kept.is_over(now)]:
            del self._kept[digest]
        own = [key for key, kept in self._kept.items() if kept.row.user == user.name]
        if len(own) >= PAGE_USER_SESSIONS_MAX:
            del self._kept[own[0]]
        if len(self._kept) >= PAGE_SESSIONS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[_digest(token)] = _Kept(LoginRow(user.name, _proof(user)), now)
        return token

    async def find(self, token: str) -> User | None:
        """Return who a token's log-in is of, None where there is none that counts."""
        node = _node(token)
        digest = _digest(token)
        if node is None:
            return None
        row = self._own(digest) if node == self._node else await self._of(node, digest)
        user = self._view.user(row.user) if row is not None else None
        if row is None or user is None:
            return None
        if not hmac.compare_digest(row.proof, _proof(user)):
            self._kept.pop(digest, None)
            return None
        return user

    async def end(self, token: str) -> None:
        """End a log-in; where its node does not answer, it ends when it is idle."""
        node, digest = _node(token), _digest(token)
        self._kept.pop(digest, None)
        self._heard.pop(digest, None)
        if node is not None and node != self._node:
            await self._asked(node, Login(digest, end=True))

    def _own(self, digest: bytes) -> LoginRow | None:
        kept = self._kept.pop(digest, None)
        now = self._clock()
        if kept is None or kept.is_over(now):
            return None
        kept.used = now
        self._kept[digest] = kept
        return kept.row

    async def _of(self, node: int, digest: bytes) -> LoginRow | None:
        now = self._clock()
        heard = self._heard.get(digest)
        if heard is not None and now < heard[1]:
            return heard[0]
        self._heard.pop(digest, None)
        row = await self._asked(node, Login(digest))
        if row is not None:
            while len(self._heard) >= PAGE_SESSIONS_MAX:
                del self._heard[next(iter(self._heard))]
            self._heard[digest] = (row, now + PAGE_REMOTE_S)
        return row

    async def _asked(self, node: int, question: Login) -> LoginRow | None:
        known = self._view.node(node) is not None
        if not known or self._asking >= PAGE_REMOTE_ASKED_MAX:
            return None
        self._asking += 1
        try:
            row: LoginRow | None = await self._inquiries.login(node, question, LoginRow)
        except NoAnswerError:
            return None
        finally:
            self._asking -= 1
        return row

    def _rows(self, question: Login) -> Iterator[msgspec.Struct]:
        """Answer another node."""
        row = self._own(question.digest)
        if question.end:
            self._kept.pop(question.digest, None)
        if row is not None:
            yield row


def _node(token: str) -> int | None:
    """Return the node that keeps a token's log-in, None for what is no token."""
    node, dot, rest = token.partition(".")
    fits = len(token) <= TOKEN_CHARACTERS_MAX and dot and rest and len(node) <= 4
    return int(node) if fits and node.isascii() and node.isdigit() else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _proof(user: User) -> bytes:
    return hashlib.sha256(user.salt + b"\0" + user.password_hash).digest()
