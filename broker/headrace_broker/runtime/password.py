"""Password hashes: scrypt, salted, verified in constant time.

Hashing takes a good part of a second of a core on purpose: call `hash_password` and
`PasswordChecker.verify` in a thread, never on the event loop.

Source: OWASP Password Storage Cheat Sheet, scrypt with 16 MiB (N = 2**14, r = 8, p = 5).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final, final

from headrace_broker.model.definition import User
from headrace_broker.model.limits import PASSWORDS_REMEMBERED_MAX

SCRYPT_COST: Final = 1 << 14  # N: 128 * N * r octets of memory, 16 MiB
SCRYPT_BLOCK_SIZE: Final = 8  # r
SCRYPT_PARALLELISM: Final = 5  # p: rounds one after the other
SCRYPT_MEMORY_OCTETS_MAX: Final = 32 << 20  # twice what the parameters need
HASH_OCTETS: Final = 32
SALT_OCTETS: Final = 16


def hash_password(password: str, salt: bytes) -> bytes:
    """Return the hash of a password, HASH_OCTETS long.

    Args:
        password: any text; lone surrogates are taken as the octets they stand for.
        salt: SALT_OCTETS random octets.
    """
    return hashlib.scrypt(
        password.encode("utf-8", "surrogateescape"),
        salt=salt,
        n=SCRYPT_COST,
        r=SCRYPT_BLOCK_SIZE,
        p=SCRYPT_PARALLELISM,
        maxmem=SCRYPT_MEMORY_OCTETS_MAX,
        dklen=HASH_OCTETS,
    )


def new_user(
    name: str, password: str, tags: tuple[str, ...] = (), loopback_only: bool = False
) -> User:
    """Return a user with a fresh salt."""
    salt = secrets.token_bytes(SALT_OCTETS)
    return User(name, salt, hash_password(password, salt), tags, loopback_only)


@final
class PasswordChecker:
    """Verifies passwords, and remembers right ones so that a client that comes back costs little.

    What it remembers is a keyed hash under a key of this process, never a password. A user whose
    password changes has another hash, so nothing needs to be forgotten.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(HASH_OCTETS)
        self._right: dict[bytes, None] = {}
        # Verified when there is no such user, so that the time taken does not tell.
        self._nobody = User("", secrets.token_bytes(SALT_OCTETS), secrets.token_bytes(HASH_OCTETS))

    def remembered(self, user: User | None, password: str) -> bool:
        """Return whether `verify` found this password right before; fast, for the event loop."""
        return user is not None and self._mark(user, password) in self._right

    def verify(self, user: User | None, password: str) -> bool:
        """Return whether the password is the user's; slow, for a thread.

        None stands for a user that does not exist and takes as long.
        """
        known = user if user is not None else self._nobody
        right = hmac.compare_digest(hash_password(password, known.salt), known.password_hash)
        if right and user is not None:
            if len(self._right) >= PASSWORDS_REMEMBERED_MAX:
                self._right = {}
            self._right[self._mark(user, password)] = None
            return True
        return False

    def _mark(self, user: User, password: str) -> bytes:
        mark = hashlib.blake2b(key=self._key, digest_size=HASH_OCTETS)
        mark.update(len(user.password_hash).to_bytes(4, "big"))
        mark.update(user.password_hash)
        mark.update(user.salt)
        mark.update(password.encode("utf-8", "surrogateescape"))
        return mark.digest()
