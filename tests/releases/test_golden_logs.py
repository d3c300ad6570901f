"""Logs of releases give the states that they gave; what influences them changes by version only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.releases import constants
from tests.releases.golden import digests_of, load, recorded, setting_defaults

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ("raftlog", "broker", ".")
Value = int | float | str
ADVICE = (
    "nodes of that release apply entries with the old value: raise MACHINE_VERSION or "
    "CATALOG_VERSION, and keep the old value, under a new name, for states of earlier versions"
)
# Recorded names of constants that are called otherwise now, or are gone because nothing applied
# by them depends on them: recorded name -> the name of today, "" for none.
RENAMED: dict[str, str] = {
    **{
        f"core.queue.state.session.{name}": f"core.queue.state.consumer.{name}"
        for name in ("ATTACHED", "DETACHED", "CANCELLED", "GETTER", "GET_CONSUMER")
    },
    "catalog.placement.VOTERS_MAX": "",  # who votes is the leader's choice, and no entry's
}
# Limits that a log is driven past: with another value it gives another state.
PROVEN = {
    "ADVICE_MAX": "catalog-bounds",
    "ARCHIVE_AGE_MS": "archives",
    "ARCHIVE_DROPPED_MAX": "archives",
    "ARCHIVE_GROUPS_MAX": "archives",
    "CATALOG_REQUEST_WINDOW": "catalog-bounds",
    "DEFERRED_COMMANDS_MAX": "deferred",
    "EXPIRE_BYTES_MAX": "expiry",
    "EXPIRE_MESSAGES_MAX": "expiry",
    "FAIRNESS_SHARED_LANES": "turns",
    "FAIRNESS_VALUES_MAX": "turns",
    "FAIRNESS_VALUE_BYTES_MAX": "turns",
    "FORGOTTEN_NODES_MAX": "catalog-bounds",
    "LEASES_MAX": "lease_groups",
    "LEASE_GROUPS_MAX": "lease_groups",
    "LEASE_MESSAGES_MAX": "large_leases",
    "LEASE_OPENERS_KEPT_MAX": "lease_groups",
    "LEASE_OPENER_BYTES_MAX": "lease_groups",
    "LEASE_TTL_MS_MAX": "lease_groups",
    "NAME_BYTES_MAX": "catalog-bounds",
    "NODES_MAX": "catalog-bounds",
    "PUBLISHERS_MAX": "publishers",
    "PUBLISHER_HOLES_MAX": "publishers",
    "PUBLISHER_RETENTION_MS": "publishers",
    "REFUSALS_KEPT_MAX": "sessions",
    "TABLE_DEPTH_MAX": "catalog-bounds",
}
VERSIONS = pytest.mark.parametrize("version", recorded())


def changed(then: Mapping[str, Value], now: Mapping[str, Value]) -> list[str]:
    """Describe constants that are gone or have another value."""
    found = []
    for name, value in then.items():
        today = RENAMED.get(name, name)
        if today and now.get(today) != value:
            found.append(f"{today} was {value} and is {now.get(today, 'not there any more')}")
    return found


def test_every_release_is_recorded() -> None:
    listed = tomllib.loads((ROOT / "releases.toml").read_text(encoding="utf-8"))["release"]
    assert [row["version"] for row in listed] == recorded()


@VERSIONS
def test_logs_give_the_states_that_they_gave(version: str) -> None:
    record, logs = load(version)
    assert logs.keys() == record.digests.keys()
    for name, entries in logs.items():
        now = digests_of(name, entries)
        wrong = [index for index, digest in record.digests[name].items() if now[index] != digest]
        assert not wrong, f"{name}: another state from entry {wrong[0]} on; {ADVICE}"


@VERSIONS
def test_limits_of_replicated_state_are_those_of_the_release(version: str) -> None:
    record, _ = load(version)
    assert not changed(record.limits, constants.limits()), ADVICE


@VERSIONS
def test_constants_of_applying_modules_are_those_of_the_release(version: str) -> None:
    record, _ = load(version)
    assert not changed(record.constants, constants.own_constants()), ADVICE


@VERSIONS
def test_settings_that_nobody_said_are_those_of_the_release(version: str) -> None:
    record, _ = load(version)
    assert not changed(record.settings, setting_defaults()), ADVICE


def test_changed_and_missing_constants_are_told() -> None:
    told = changed({"A": 1, "B": 2, "C": 3}, {"A": 1, "B": 4})
    assert told == ["B was 2 and is 4", "C was 3 and is not there any more"]


def test_proven_limits_are_among_those_of_replicated_state() -> None:
    assert constants.limits().keys() >= PROVEN.keys()
    assert {"DELIVERY_LIMIT", "REPLICAS_MAX", "ARCHIVE_MESSAGES"} <= constants.limits().keys()


def test_other_values_of_limits_give_other_states() -> None:
    paths = [str(ROOT / each) for each in SOURCE]
    done = subprocess.run(
        [sys.executable, "-m", "tests.releases.mutation"],
        input=json.dumps(PROVEN),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == dict.fromkeys(PROVEN, True)
