"""/api/users, /api/user-limits and /api/permissions."""

from __future__ import annotations

import base64
import hashlib

import pytest

from headrace_broker.model.definition import User
from headrace_broker.runtime.security.password import PasswordChecker, new_user


def knows(user: User | None, password: str) -> bool:
    return PasswordChecker().verify(user, password) is not None


def test_a_user_is_created_with_a_salted_hash_and_shown_without_its_password(api, node):
    body = {"password": "sesame", "tags": "management,policymaker"}
    assert api("PUT", "/api/users/bob", body) == (201, None)
    user = node.view.user("bob")
    assert knows(user, "sesame")
    assert user.tags == ("management", "policymaker")
    status, shown = api("GET", "/api/users/bob")
    assert (status, shown["tags"], shown["hashing_algorithm"]) == (200, list(user.tags), "scrypt")
    assert base64.b64decode(shown["password_hash"]) == user.salt + user.password_hash
    assert api("DELETE", "/api/users/bob") == (204, None)
    assert api("GET", "/api/users/bob")[0] == 404
    assert api("DELETE", "/api/users/bob")[0] == 404


def test_tags_change_and_the_password_stays_when_its_hash_comes_back(api, node):
    api("PUT", "/api/users/bob", {"password": "sesame", "tags": []})
    secret = api("GET", "/api/users/bob")[1]["password_hash"]
    body = {"password_hash": secret, "hashing_algorithm": "scrypt", "tags": ["monitoring"]}
    assert api("PUT", "/api/users/bob", body) == (204, None)
    assert node.view.user("bob").tags == ("monitoring",)
    assert knows(node.view.user("bob"), "sesame")


def test_sessions_end_when_a_change_of_the_user_says_so(api, node):
    body = {"password": "sesame", "tags": "management"}
    api("PUT", "/api/users/bob", body)
    first = node.catalog.session_epoch("bob")
    assert first > 0
    api("PUT", "/api/users/bob", {**body, "password": "other"})
    assert node.catalog.session_epoch("bob") == first
    assert api("PUT", "/api/users/bob", {**body, "end_sessions": True}) == (204, None)
    assert node.catalog.session_epoch("bob") == node.catalog.applied_index > first
    status, refusal = api("PUT", "/api/users/bob", {**body, "end_sessions": "yes"})
    assert (status, "end_sessions" in refusal["reason"]) == (400, True)


# The example of RabbitMQ's documentation, "Passwords"; and the same with SHA-512.
SHA256 = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
SHA512 = base64.b64encode(
    b"\x90\x8d\xc6\x0a" + hashlib.sha512(b"\x90\x8d\xc6\x0a" + b"test12").digest()
).decode()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("name", "secret"), [("sha256", SHA256), ("sha512", SHA512)])
def test_hashes_that_rabbitmq_makes_prove_a_password(api, node, name, secret, named):
    algorithm = f"rabbit_password_hashing_{name}"
    body = {"password_hash": secret, "tags": "monitoring"}
    if named:
        body["hashing_algorithm"] = algorithm
    assert api("PUT", "/api/users/bob", body) == (201, None)
    assert knows(node.view.user("bob"), "test12")
    assert not knows(node.view.user("bob"), "test13")
    shown = api("GET", "/api/users/bob")[1]
    assert (shown["password_hash"], shown["hashing_algorithm"]) == (secret, algorithm)
    assert api("PUT", "/api/users/bob", shown) == (204, None)
    file = {"users": [{"name": "eve", "tags": "", **body}]}
    assert api("POST", "/api/definitions", file) == (204, None)
    assert knows(node.view.user("eve"), "test12")


@pytest.mark.parametrize("body", [{"tags": ""}, {"tags": "", "password_hash": ""}])
def test_a_user_without_a_password_cannot_log_in_with_one(api, node, body):
    assert api("PUT", "/api/users/cert", body) == (201, None)
    assert not knows(node.view.user("cert"), "")
    assert api("GET", "/api/users/cert")[1]["password_hash"] == ""


def test_a_user_that_may_log_in_from_loopback_only_stays_so(api, node):
    from headrace_broker.catalog.command import PutUser

    node.do(PutUser(new_user("guest", "old", ("administrator",), loopback_only=True)))
    api("PUT", "/api/users/guest", {"password": "new", "tags": "administrator"})
    assert node.view.user("guest").loopback_only


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "x"}, "tags: is missing"),
        ({"password": "", "tags": ""}, "password: must not be empty"),
        ({"password": 1, "tags": ""}, "password: expected `str | null`, got `int`"),
        (
            {"password": "x", "password_hash": "", "tags": ""},
            "password_hash: is not allowed beside password",
        ),
        (
            {
                "password_hash": "AAAA",
                "hashing_algorithm": "rabbit_password_hashing_md5",
                "tags": "",
            },
            "hashing_algorithm: must be one of scrypt, rabbit_password_hashing_sha256, "
            "rabbit_password_hashing_sha512, not 'rabbit_password_hashing_md5'",
        ),
        (
            {"password_hash": "???", "hashing_algorithm": "scrypt", "tags": ""},
            "password_hash: must be 16 bytes of salt and 32 of hash (scrypt), in base64",
        ),
        (
            {"password_hash": "AAAA", "tags": ""},
            "password_hash: must be 16 bytes of salt and 32 of hash (scrypt), or 4 bytes of salt "
            "and 32 of hash (rabbit_password_hashing_sha256), or 4 bytes of salt and 64 of hash "
            "(rabbit_password_hashing_sha512), in base64",
        ),
    ],
)
def test_a_bad_user_is_refused_by_field_and_rule(refused, body, reason):
    assert refused(400, "PUT", "/api/users/bob", body) == reason


def test_tags_are_bounded(api, refused):
    tags = [f"t{number}" for number in range(64)]
    body = {"password_hash": "", "tags": tags}
    assert api("PUT", "/api/users/bob", body) == (201, None)
    tags.append("more")
    assert refused(400, "PUT", "/api/users/bob", body) == "tags: there are 65, more than 64"
    body["tags"] = ["x" * 256]
    assert refused(400, "PUT", "/api/users/bob", body).startswith("tags: one has 256 bytes")
    file = {"users": [{"name": "bob", **body}]}
    assert "tags: one has 256 bytes" in refused(400, "POST", "/api/definitions", file)
    file = {"vhosts": [{"name": "v", "tags": ["y" * 256]}]}
    assert "tags: one has 256 bytes" in refused(400, "POST", "/api/definitions", file)


def test_permissions_are_set_shown_and_taken_away(api):
    body = {"configure": "^a", "write": ".*", "read": ""}
    row = {"user": "alice", "vhost": "/", **body}
    assert api("PUT", "/api/permissions/%2F/alice", body) == (201, None)
    assert api("PUT", "/api/permissions/%2F/alice", body) == (204, None)
    assert api("GET", "/api/permissions/%2F/alice") == (200, row)
    assert api("GET", "/api/users/alice/permissions") == (200, [row])
    assert row in api("GET", "/api/vhosts/%2F/permissions")[1]
    assert row in api("GET", "/api/permissions")[1]
    assert api("DELETE", "/api/permissions/%2F/alice") == (204, None)
    assert api("GET", "/api/permissions/%2F/alice")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("%2F/alice", {"configure": "", "write": ""}, 400, "read: is missing"),
        ("%2F/alice", {"configure": "(", "write": "", "read": ""}, 400, "configure: "),
        ("v/alice", {"configure": "", "write": "", "read": ""}, 404, "no vhost 'v'"),
        ("%2F/eve", {"configure": "", "write": "", "read": ""}, 404, "no user 'eve'"),
    ],
)
def test_a_bad_permission_is_refused(refused, path, body, status, reason):
    assert refused(status, "PUT", f"/api/permissions/{path}", body).startswith(reason)


def test_topic_permissions_are_set_shown_and_taken_away(api):
    one = "/api/topic-permissions/%2F/alice"
    body = {"exchange": "amq.topic", "write": "^{username}", "read": ""}
    row = {"user": "alice", "vhost": "/", **body}
    assert api("PUT", one, body) == (201, None)
    assert api("PUT", one, body) == (204, None)
    assert api("PUT", one, {**body, "exchange": "x/y"}) == (201, None)
    assert api("GET", f"{one}/amq.topic") == (200, row)
    for path in (
        one,
        "/api/users/alice/topic-permissions",
        "/api/vhosts/%2F/topic-permissions",
        "/api/topic-permissions",
    ):
        assert api("GET", path) == (200, [row, {**row, "exchange": "x/y"}])
    assert api("DELETE", f"{one}/x%2Fy") == (204, None)
    assert api("GET", one) == (200, [row])
    assert api("DELETE", one) == (204, None)
    assert api("GET", one) == (200, [])
    assert api("GET", f"{one}/amq.topic")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("%2F/alice", {"exchange": "x", "write": ""}, 400, "read: is missing"),
        ("%2F/alice", {"exchange": "x", "write": "(", "read": ""}, 400, "write: "),
        ("%2F/alice", {"exchange": "", "write": "", "read": ""}, 400, "the exchange's name"),
        ("v/alice", {"exchange": "x", "write": "", "read": ""}, 404, "no vhost 'v'"),
        ("%2F/eve", {"exchange": "x", "write": "", "read": ""}, 404, "no user 'eve'"),
    ],
)
def test_a_bad_topic_permission_is_refused(refused, path, body, status, reason):
    assert refused(status, "PUT", f"/api/topic-permissions/{path}", body).startswith(reason)


def test_limits_of_users(api, refused):
    assert api("PUT", "/api/user-limits/alice/publish-rate-messages", {"value": 3}) == (204, None)
    row = {"user": "alice", "value": {"publish-rate-messages": 3}}
    assert api("GET", "/api/user-limits") == (200, [row])
    assert api("GET", "/api/user-limits/alice") == (200, [row])
    assert api("DELETE", "/api/user-limits/alice/publish-rate-messages") == (204, None)
    assert api("DELETE", "/api/user-limits/alice/publish-rate-messages") == (204, None)
    assert refused(404, "DELETE", "/api/user-limits/alice/jokes") == "no limit 'jokes' of users"


def test_everybody_learns_who_he_is_and_only_administrators_see_users(api, refused):
    assert api("GET", "/api/whoami", user="alice") == (
        200,
        {"name": "alice", "tags": ["management"]},
    )
    for path in ("/api/users", "/api/users/guest", "/api/permissions", "/api/topic-permissions"):
        assert "administrator" in refused(403, "GET", path, user="mon")
    assert "administrator" in refused(403, "PUT", "/api/users/x", {"tags": ""}, user="pol")
