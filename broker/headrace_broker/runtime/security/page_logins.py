"""Log-ins at the web page: kept by the node that they were made at, and known to the others.

Who is logged in shows a random token; its first part names the node that keeps the log-in, the
others ask that one. Nodes keep and exchange digests of tokens only.

A question without an answer ends no log-in: while the keeper is silent, or too many questions are
under way, its last word counts for PAGE_REMOTE_UNHEARD_S.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from contextvars import Context
from typing import Final, NamedTuple

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import User
from headrace_broker.model.limits import (
    PAGE_REMOTE_ASKED_MAX,
    PAGE_REMOTE_KNOWN_MAX,
    PAGE_REMOTE_S,
    PAGE_REMOTE_UNHEARD_S,
    PAGE_SESSION_IDLE_S,
    PAGE_SESSION_S_MAX,
    PAGE_SESSIONS_MAX,
    PAGE_USER_SESSIONS_MAX,
)
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Question, RpcError

TOKEN_BYTES: Final = 32  # random bytes
TOKEN_CHARACTERS_MAX: Final = 64


class LoginsBusyError(Exception):
    """Too many questions about log-ins are under way to ask about one more."""


class LoginRow(msgspec.Struct, frozen=True):
    """A log-in that counts."""

    user: str
    proof: bytes  # a digest of what the user's password is checked by, so that another one ends it
    epoch: int  # `CatalogView.session_epoch` as of the log-in


class Login(Question[LoginRow | None], frozen=True, tag="login"):
    """Request the owner of a log-in at the node's web page."""

    digest: bytes  # SHA-256 of its token
    end: bool = False  # and it ends now


class _Word(NamedTuple):
    """Verdict of another node on a log-in, and the time of the question."""

    row: LoginRow
    asked: float


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
    """Opens, finds and ends log-ins."""

    def __init__(
        self, node: int, view: CatalogView, rpc: Rpc, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node  # this node's id
        self._view = view  # the catalog, for what is a user now
        self._rpc = rpc  # asks other nodes
        self._clock = clock  # seconds of a clock that never goes back
        self._kept: dict[bytes, _Kept] = {}  # the one unused longest first
        self._heard: dict[bytes, _Word] = {}  # the oldest first
        self._over: dict[bytes, None] = {}  # logged out of, wherever they are kept; oldest first
        self._watchers: dict[bytes, list[Callable[[], None]]] = {}
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        self._strange: set[bytes] = set()  # among these: no node has confirmed them yet
        rpc.serve(Login, lambda _, question: self._answer(question))

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
        row = LoginRow(user.name, _proof(user), self._view.session_epoch(user.name))
        self._kept[_digest(token)] = _Kept(row, now)
        return token

    async def find(self, token: str) -> User | None:
        """Return the log-in of a token, None if unknown; LoginsBusyError while not known."""
        node = _node(token)
        digest = _digest(token)
        if node is None or digest in self._over:
            return None
        row = self._own(digest) if node == self._node else await self._of(node, digest)
        user = self._view.user(row.user) if row is not None else None
        if row is None or user is None:
            return None
        same_epoch = row.epoch == self._view.session_epoch(user.name)
        if not same_epoch or not hmac.compare_digest(row.proof, _proof(user)):
            self._kept.pop(digest, None)
            return None
        return user

    async def end(self, token: str) -> None:
        """End a log-in on all nodes that answer.

        One that keeps it and does not answer lets it go on for those whom it serves itself, until
        it is idle; one that only knows it forgets it within PAGE_REMOTE_S when the keeper answers
        it, within PAGE_REMOTE_UNHEARD_S when not. Call this with a token that `find` knows: each
        call is told to all nodes.
        """
        if _node(token) is None:
            return
        digest = _digest(token)
        self._end_here(digest)
        others = [each.id for each in self._view.nodes() if each.id != self._node]
        question = Login(digest, end=True)
        asked = [self._rpc.ask(other, question) for other in others]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, RpcError):
                raise outcome

    def watch(self, token: str, over: Callable[[], None]) -> None:
        """Call back when a log-in is ended; an invalid token is ignored."""
        if _node(token) is not None:
            self._watchers.setdefault(_digest(token), []).append(over)

    def unwatch(self, token: str, over: Callable[[], None]) -> None:
        """Take `watch` back."""
        digest = _digest(token)
        watchers = self._watchers.get(digest, [])
        if over in watchers:
            watchers.remove(over)
        if not watchers:
            self._watchers.pop(digest, None)

    def _end_here(self, digest: bytes) -> None:
        self._kept.pop(digest, None)
        self._heard.pop(digest, None)
        if len(self._over) >= PAGE_SESSIONS_MAX:
            del self._over[next(iter(self._over))]
        self._over[digest] = None
        for over in self._watchers.pop(digest, []):
            over()

    def _own(self, digest: bytes) -> LoginRow | None:
        kept = self._kept.pop(digest, None)
        now = self._clock()
        if kept is None or kept.is_over(now):
            return None
        kept.used = now
        self._kept[digest] = kept
        return kept.row

    async def _of(self, node: int, digest: bytes) -> LoginRow | None:
        word, now = self._heard.get(digest), self._clock()
        if word is not None and now < word.asked + PAGE_REMOTE_S:
            return word.row
        if self._view.node(node) is None:
            self._heard.pop(digest, None)
            return None
        lasts = word is not None and now < word.asked + PAGE_REMOTE_UNHEARD_S
        asking = self._question(node, digest)
        if asking is not None:
            await asyncio.wait((asking,), timeout=PAGE_REMOTE_S if lasts else None)
            if asking.done():
                asking.result()
        elif not lasts:
            raise LoginsBusyError
        word = self._heard.get(digest)
        if word is None or self._clock() >= word.asked + PAGE_REMOTE_UNHEARD_S:
            return None
        return word.row

    def _question(self, node: int, digest: bytes) -> asyncio.Task[None] | None:
        """Return the one question about a log-in, None where too many others are under way."""
        asking = self._asking.get(digest)
        if asking is not None:
            return asking
        strange = digest not in self._heard
        if strange and len(self._strange) >= PAGE_REMOTE_ASKED_MAX:
            return None
        if not strange and len(self._asking) - len(self._strange) >= PAGE_REMOTE_KNOWN_MAX:
            return None
        asking = asyncio.create_task(self._hear(node, digest), context=Context())  # for all
        self._asking[digest] = asking
        if strange:
            self._strange.add(digest)
        asking.add_done_callback(lambda _: self._asked(digest))
        return asking

    def _asked(self, digest: bytes) -> None:
        del self._asking[digest]
        self._strange.discard(digest)

    async def _hear(self, node: int, digest: bytes) -> None:
        """Note what a node says of a log-in; nothing where it does not answer."""
        now = self._clock()  # it may have ended since, on the answer's way
        try:
            row = await self._rpc.ask(node, Login(digest))
        except RpcError:
            return
        self._heard.pop(digest, None)
        if row is None or digest in self._over:
            return
        while len(self._heard) >= PAGE_SESSIONS_MAX:
            del self._heard[next(iter(self._heard))]
        self._heard[digest] = _Word(row, now)

    def _answer(self, question: Login) -> LoginRow | None:
        """Answer another node."""
        row = self._own(question.digest)
        if question.end:
            self._end_here(question.digest)
        return row


def _node(token: str) -> int | None:
    """Return the node that keeps a token's log-in, None for an invalid token."""
    node, dot, rest = token.partition(".")
    fits = len(token) <= TOKEN_CHARACTERS_MAX and dot and rest and len(node) <= 4
    return int(node) if fits and node.isascii() and node.isdigit() else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _proof(user: User) -> bytes:
    return hashlib.sha256(user.salt + b"\0" + user.password_hash).digest()
