"""Calculations of the page's scripts: layout, scales, figures, policies; run by Node.js."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "script").glob("*.test.mjs"))
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_scripts(script: Path, tmp_path: Path) -> None:
    assert NODE is not None
    static = resources.files("headrace_broker.management.page").joinpath("static")
    package = tmp_path / "node_modules" / "static"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"type": "module"}')
    for entry in static.iterdir():
        if entry.name.endswith(".js"):
            (package / entry.name).write_bytes(entry.read_bytes())
    copy = tmp_path / script.name
    copy.write_bytes(script.read_bytes())
    done = subprocess.run([NODE, "--test", str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
