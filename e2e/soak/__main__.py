"""`python -m e2e.soak`: a soak, and its report below build/soak."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from e2e.soak.recording import Recording
from e2e.soak.report import render
from e2e.soak.run import Options, Soak
from e2e.soak.verdict import State, verdicts

DIRECTORY: Final = Path("build/soak")


def main(arguments: list[str]) -> int:
    """Run a soak, or report on a recording again; return 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    parser.add_argument("--recording", type=Path, help="only report on what was recorded")
    given = parser.parse_args(arguments)
    if given.recording is not None:
        recording = Recording.load(given.recording)
    else:
        options = Options(given.minutes, given.queues, given.seed)
        recording = Soak(options, given.directory, _say).execute()
    report = given.directory / "report.html"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(render(recording), encoding="utf-8")
    found = verdicts(recording)
    for each in found:
        _say(f"{each.state:7} {each.rule}: {each.text}")
    _say(f"report: {report}")
    return 1 if any(each.state is State.BROKEN for each in found) else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
