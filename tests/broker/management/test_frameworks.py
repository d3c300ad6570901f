"""Versions, flags and delivery limits, which frameworks read from the HTTP API first."""

from __future__ import annotations

from headrace_broker.model import build_info


def test_versions_of_the_api_and_of_the_product_are_told_apart(api):
    overview = api("GET", "/api/overview")[1]
    assert overview["rabbitmq_version"] == overview["management_version"]
    assert tuple(map(int, overview["rabbitmq_version"].split("."))) >= (4, 0, 0)
    assert overview["product_name"] == "Headrace"
    assert overview["headrace_version"] == overview["product_version"] == build_info.VERSION
    head = api("GET", "/api/definitions")[1]
    for name in ("rabbitmq_version", "headrace_version", "product_version"):
        assert head[name] == overview[name]


def test_flags_are_those_of_what_is_there(api):
    status, flags = api("GET", "/api/feature-flags")
    assert status == 200
    states = {row["name"]: row["state"] for row in flags}
    assert states["quorum_queue"] == "enabled"
    assert set(states.values()) == {"enabled"}
    assert "stream_queue" not in states  # as long as there are no streams
    assert all(set(row) >= {"desc", "stability", "provided_by"} for row in flags)
