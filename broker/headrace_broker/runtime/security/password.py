"""Password hashes: scrypt, salted, verified in constant time.

Those that RabbitMQ makes (SHA-256 or SHA-512 of salt and password) are verified as well, and give
way to ours once the password is seen.

Hashing takes a good part of a second of a core on purpose: call `hash_password` and
`PasswordChecker.verify` in a thread, never on the event loop.

Source: OWASP Password Storage Cheat Sheet, scrypt with 16 MiB (N = 2**14, r = 8, p = 5).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Final, final

from headrace_broker.model.definition import HASHED_SCRYPT, HASHED_SHA256, HASHED_SHA512, User
from headrace_broker.model.limits import PASSWORDS_REMEMBERED_MAX

SCRYPT_COST: Final = 1 << 14  # N: 128 * N * r bytes of memory, 16 MiB
SCRYPT_BLOCK_SIZE: Final = 8  # r
SCRYPT_PARALLELISM: Final = 5  # p: rounds one after the other
SCRYPT_MEMORY_BYTES_MAX: Final = 32 << 20  # twice what the parameters need
HASH_BYTES: Final = 32
SALT_BYTES: Final = 16
# Bytes of salt and hash by how a password is hashed.
BYTES: Final = {
    HASHED_SCRYPT: (SALT_BYTES, HASH_BYTES),
    HASHED_SHA256: (4, 32),
    HASHED_SHA512: (4, 64),
}


def hash_password(password: str, salt: bytes) -> bytes:
    """Return a password's hash, HASH_BYTES long; lone surrogates stand for bytes."""
    return hashlib.scrypt(
        _data(password),
        salt=salt,
        n=SCRYPT_COST,
        r=SCRYPT_BLOCK_SIZE,
        p=SCRYPT_PARALLELISM,
        maxmem=SCRYPT_MEMORY_BYTES_MAX,
        dklen=HASH_BYTES,
    )


def _data(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


def new_user(
    name: str, password: str, tags: tuple[str, ...] = (), loopback_only: bool = False
) -> User:
    """Return a user with a fresh salt."""
    salt = secrets.token_bytes(SALT_BYTES)
    return User(name, salt, hash_password(password, salt), tags, loopback_only)


@final
class PasswordChecker:
    """Verifies passwords, and remembers right ones so that a client that comes back costs little.

    What it remembers is a keyed hash under a key of this process, never a password. A user whose
    password changes has another hash, so nothing needs to be forgotten. Of too many, those that
    were used longest ago are.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(HASH_BYTES)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        # Verified when there is no such user, so that the time taken does not tell.
        self._nobody = User("", secrets.token_bytes(SALT_BYTES), secrets.token_bytes(HASH_BYTES))

    def remembered(self, user: User | None, password: str) -> bool:
        """Return whether `verify` found this password right before; fast, for the event loop."""
        if user is None:
            return False
        try:
            self._right.move_to_end(self._mark(user, password))
        except KeyError:
            return False
        return True

    def mark_of(self, password: str) -> bytes:
        """Return what tells a password from others for as long as this process runs."""
        return hashlib.blake2b(_data(password), key=self._key, digest_size=HASH_BYTES).digest()

    def verify(self, user: User | None, password: str) -> User | None:
        """Return the user if the password is right, else None; slow, for a thread.

        A user with a hash of another kind comes back with one of ours, to be kept instead. None
        stands for a user that does not exist; all take as long.
        """
        if user is not None and user.hashing not in BYTES:
            user = None  # a later version knows
        known = user if user is not None else self._nobody
        if known.hashing == HASHED_SCRYPT:
            hashed, kept = hash_password(password, known.salt), known
        else:
            hashed = hashlib.new(known.hashing, known.salt + _data(password)).digest()
            kept = new_user(known.name, password, known.tags, known.loopback_only)
        if not hmac.compare_digest(hashed, known.password_hash) or user is None:
            return None
        self._remember(user, password)
        if kept is not user:
            self._remember(kept, password)
        return kept

    def _remember(self, user: User, password: str) -> None:
        self._right[self._mark(user, password)] = None
        if len(self._right) > PASSWORDS_REMEMBERED_MAX:
            self._right.popitem(last=False)  # the one that was used longest ago

    def forget(self, user: User, password: str) -> None:
        """Forget that a password was right before, so that it is verified again."""
        self._right.pop(self._mark(user, password), None)

    def _mark(self, user: User, password: str) -> bytes:
        mark = hashlib.blake2b(key=self._key, digest_size=HASH_BYTES)
        mark.update(len(user.password_hash).to_bytes(4, "big"))
        mark.update(user.password_hash)
        mark.update(user.salt)
        mark.update(_data(password))
        return mark.digest()
