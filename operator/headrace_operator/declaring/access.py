"""`Vhost`, `User` and `Permission` in a broker."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from typing import Any, Final

from headrace_operator.builders.secret import decoded, new_password
from headrace_operator.declaring.subject import ConflictError, Declaration, Subject, differs
from headrace_operator.reconciler import Key
from headrace_operator.specs.kind import PERMISSION, USER, VHOST
from headrace_operator.status_patch import timestamp

REFUSE: Final = "RefuseUnlessEmpty"


async def apply_vhost(subject: Subject) -> dict[str, Any]:
    """Create or change a vhost.

    Raises:
        BrokerError: it is refused.
    """
    spec, name = subject.spec, subject.name
    wanted: dict[str, Any] = {
        "description": spec.get("description", ""),
        "tags": sorted(spec.get("tags") or []),
    }
    if spec.get("defaultQueueType"):
        wanted["default_queue_type"] = spec["defaultQueueType"]
    found = await subject.api.get("vhosts", name)
    shown = {**found, "tags": sorted(found.get("tags") or [])} if found is not None else None
    if differs(shown, wanted):
        await subject.api.put(wanted, "vhosts", name)
    await _limit(subject, "vhost-limits", name)
    return {}


async def delete_vhost(subject: Subject) -> str:
    """Delete a vhost, if it may be; return why not."""
    if subject.spec.get("deletionPolicy", REFUSE) == REFUSE:
        rows = await subject.api.get("queues", subject.name) or []
        full = [row for row in rows if row.get("messages", 1)]
        if full:
            return f"messages wait in {len(full)} queues, '{full[0]['name']}' for one"
    await subject.api.delete("vhosts", subject.name)
    return ""


async def _limit(subject: Subject, kind: str, name: str) -> None:
    """Reconcile the limits of a vhost or user with the spec."""
    wanted: dict[str, int] = subject.spec.get("limits") or {}
    rows = await subject.api.get(kind, name) or []
    found: dict[str, int] = rows[0]["value"] if rows else {}
    for limit, value in wanted.items():
        if found.get(limit) != value:
            await subject.api.put({"value": value}, kind, name, limit)
    for limit in found.keys() - wanted.keys():
        await subject.api.delete(kind, name, limit)


async def apply_permission(subject: Subject) -> dict[str, Any]:
    """Say what a user may do in a vhost.

    Raises:
        ConflictError: the User that is named is not there.
        BrokerError: it is refused.
    """
    spec, at = subject.spec, (subject.vhost, await _user_of(subject))
    wanted = {each: spec.get(each, "") for each in ("configure", "write", "read")}
    if differs(await subject.api.get("permissions", *at), wanted):
        await subject.api.put(wanted, "permissions", *at)
    rows = await subject.api.get("topic-permissions", *at) or []
    found = {row["exchange"]: row for row in rows}
    topics = {row["exchange"]: row for row in spec.get("topics") or []}
    for exchange, row in topics.items():
        topic = {"exchange": exchange, "write": row.get("write", ""), "read": row.get("read", "")}
        if differs(found.get(exchange), topic):
            await subject.api.put(topic, "topic-permissions", *at)
    for exchange in found.keys() - topics.keys():
        await subject.api.delete("topic-permissions", *at, exchange)
    return {}


async def delete_permission(subject: Subject) -> str:
    """Remove a user's permissions in a vhost; a missing user has none."""
    try:
        at = (subject.vhost, await _user_of(subject))
    except ConflictError:
        return ""
    await subject.api.delete("topic-permissions", *at)
    await subject.api.delete("permissions", *at)
    return ""


async def _user_of(subject: Subject) -> str:
    """Return the name of the user in the broker.

    Raises:
        ConflictError: the User that is named is not there.
    """
    spec = subject.spec
    if spec.get("user"):
        return str(spec["user"])
    name = spec["userRef"]["name"]
    found = await subject.operator.resource(USER, subject.namespace, name)
    if found is None:
        raise ConflictError(f"User {name} is not there")
    return str(found["spec"].get("name") or name)


class Passwords:
    """Creates users with their passwords, and remembers which passwords a broker has.

    A broker tells hashes of passwords only. So a password is set once after each start of the
    operator, and again when the hash changes that came of it.
    """

    def __init__(self) -> None:
        self._set: dict[Key, tuple[str, str]] = {}  # password and hash

    def forget(self, key: Key) -> None:
        """Forget the password of a user."""
        self._set.pop(key, None)

    async def apply(self, subject: Subject) -> dict[str, Any]:
        """Create or change a user.

        Raises:
            ConflictError: the Secret with the password is not there.
            BrokerError: it is refused.
        """
        spec, name = subject.spec, subject.name
        wanted = {"tags": spec.get("tags") or []}
        status: dict[str, Any] = {"username": name}
        password = ""
        if not spec.get("withoutPassword"):
            password, more = await self._password(subject)
            status |= more
        found = await subject.api.get("users", name)
        known = (found or {}).get("password_hash", "")
        is_set = self._set.get(subject.key) == (password, known) if password else not known
        if not is_set or differs(_sorted(found), _sorted(wanted) or {}):
            body = {**wanted, "password": password} if password else wanted
            await subject.api.put(body, "users", name)
            found = await subject.api.get("users", name) or {}
            self._set[subject.key] = (password, found.get("password_hash", ""))
        await _limit(subject, "user-limits", name)
        return status

    async def delete(self, subject: Subject) -> str:
        """Delete a user."""
        await subject.api.delete("users", subject.name)
        self.forget(subject.key)
        return ""

    async def _password(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the password, and what the status says of it."""
        source = subject.spec.get("password")
        kube = subject.operator.kube
        if source is not None:
            key = source.get("key") or "password"
            data = decoded(await kube.get("v1", "Secret", subject.namespace, source["name"]))
            if not data.get(key):
                raise ConflictError(f"Secret {source['name']} has no {key}")
            return data[key].decode(), {"credentials": {"name": source["name"]}}
        return await self._made(subject)

    async def _made(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return a password that the operator makes; a new one where it is time for that."""
        kube, before = subject.operator.kube, subject.body.get("status") or {}
        name = f"{subject.body['metadata']['name']}-user-credentials"
        rotation = subject.spec.get("rotation") or {}
        data = decoded(await kube.get("v1", "Secret", subject.namespace, name))
        now, request = subject.operator.now(), rotation.get("request", "")
        rotated_at, password = before.get("rotatedAt"), data.get("password", b"").decode()
        if not password or _is_due(rotation, before, now):
            password, rotated_at = new_password(), timestamp(now)
            await kube.apply(_credentials(subject, name, password))
            subject.operator.post_event(
                subject.body, "Password", f"a password was made: Secret {name}"
            )
        status = {"credentials": {"name": name}, "rotationRequest": request}
        return password, {**status, "rotatedAt": rotated_at or timestamp(now)}


def _sorted(user: dict[str, Any] | None) -> dict[str, Any] | None:
    return {"tags": sorted(user["tags"])} if user is not None else None


def _is_due(rotation: dict[str, Any], status: dict[str, Any], now: datetime) -> bool:
    """Return whether a password is to be made anew."""
    if rotation.get("request", "") != status.get("rotationRequest", ""):
        return True
    days, at = rotation.get("everyDays"), status.get("rotatedAt")
    return bool(days and at) and now >= datetime.fromisoformat(str(at)) + timedelta(days=days or 0)


def _credentials(subject: Subject, name: str, password: str) -> dict[str, Any]:
    """Return the Secret with a user's name and password, and what clients have to know."""
    cluster, meta = subject.way.cluster, subject.body["metadata"]
    protocol = "amqp" if cluster.serves_plain else "amqps"
    data = {
        "type": "headrace",
        "provider": "headrace",
        "host": cluster.client_host,
        "port": str(cluster.ports[protocol]),
        "username": subject.name,
        "password": password,
    }
    owner = USER.owner(meta["name"], meta["uid"])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": subject.namespace, "ownerReferences": [owner]},
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def declarations() -> tuple[Declaration, ...]:
    """Return how vhosts, users and permissions are declared."""
    passwords = Passwords()
    return (
        Declaration(VHOST, apply_vhost, delete_vhost, careful=True),
        Declaration(USER, passwords.apply, passwords.delete, forget=passwords.forget),
        Declaration(PERMISSION, apply_permission, delete_permission),
    )
