"""The example of the README does what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

from e2e.harness.ports import free_ports

README = Path(__file__).resolve().parents[2] / "raftlog" / "README.md"
EXAMPLE_PORTS = re.compile(r"127\.0\.0\.1:747(\d)")


def example(ports: dict[str, int]) -> str:
    """Return the example's text, on ports of our own."""
    [text] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return EXAMPLE_PORTS.sub(lambda match: f"127.0.0.1:{ports[match[1]]}", text)


def greeting(node: subprocess.Popen[str]) -> str:
    """Return what a node prints that it reads."""
    assert node.stdout is not None
    for line in node.stdout:
        if " reads " in line:
            return line.split(" reads ")[1]
    raise AssertionError(f"the node ended with {node.wait()}")


def test_example_prints_the_same_greeting_on_all_nodes(tmp_path: Path) -> None:
    script = tmp_path / "dictionary.py"
    script.write_text(example(dict(zip("123", free_ports(3), strict=True))), encoding="utf-8")
    with ExitStack() as stack:
        nodes = []
        for node in ("1", "2", "3"):
            command = [sys.executable, str(script), node, str(tmp_path / node)]
            process = stack.enter_context(subprocess.Popen(command, stdout=PIPE, text=True))
            stack.callback(process.kill)
            nodes.append(process)
        greetings = [greeting(node) for node in nodes]
    assert len(set(greetings)) == 1
    assert greetings[0].startswith("'hello from ")
