"""Golden scripts: one per hazard, replayed and compared word for word.

After a change that is meant to alter them, renew them and read the difference:
`PYTHONPATH=simulation python -m headrace_simulation.simulator --rewrite FILE`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_simulation.simulator.script import Script, replay

SCRIPTS = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_gives_its_written_output(path):
    text = path.read_text()
    assert replay(text) == text


def test_scripts_are_found():
    assert len(SCRIPTS) >= 40


def test_changed_behaviour_changes_the_output():
    text = next(path for path in SCRIPTS if path.stem == "election").read_text()
    assert replay(text.replace("voters=1,2,3", "voters=1,2,3,4")) != text


@pytest.mark.parametrize("command", ["fly 1", "tick 9", "log 1"])
def test_wrong_command_is_an_error(command):
    with pytest.raises(KeyError):
        Script().run(f"group voters=1,2\n{command}")


def test_snapshot_of_what_is_not_on_the_disk_is_an_error():
    with pytest.raises(ValueError, match="1 is not on the disk of member 1"):
        Script().run("group voters=1\ncampaign 1\nready 1\npersist 1\nready 1\nsnapshot 1 1")


def test_persisting_what_is_not_written_is_an_error():
    with pytest.raises(ValueError, match="member 2 has nothing to write"):
        Script().run("group voters=1,2\npersist 2")


def test_restoring_what_was_not_offered_is_an_error():
    with pytest.raises(ValueError, match="member 2 was offered no snapshot"):
        Script().run("group voters=1,2\nrestore 2")


def test_command_to_a_member_that_is_down_is_an_error():
    with pytest.raises(ValueError, match="member 1 is down"):
        Script().run("group voters=1,2\ncrash 1\ntick 1")
