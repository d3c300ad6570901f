"""`python -m e2e.judge HISTORY`: TLC's verdict on a recorded history, and on doctored ones.

HISTORY is a history.json of e2e.chaos, or an exported file of lines (.jsonl). Without it, a bounded
chaos run is made first.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from e2e.chaos.__main__ import run_directory
from e2e.chaos.history import History
from e2e.chaos.run import Options, Run
from e2e.chaos.schedule import SHORT_KINDS
from e2e.judge.doctor import MESSAGE_DOCTORS, NAME_DOCTORS, reduce
from e2e.judge.judge import judge_messages, judge_names
from e2e.judge.operations import Event, export, load, save
from e2e.judge.tlc import PLACE

BOUNDED: Final = Options(1, nodes=3, steps=4, kinds=SHORT_KINDS)


def main(arguments: list[str]) -> int:
    """Judge; return 1 when the history is rejected, or a doctored one is not."""
    parser = argparse.ArgumentParser(prog="python -m e2e.judge", description=__doc__)
    parser.add_argument("history", type=Path, nargs="?")
    given = parser.parse_args(arguments)
    events = _events(given.history)
    wrong = 0
    began = time.monotonic()
    reduced = reduce(events)
    for history in (events, reduced):
        for judge in (judge_messages, judge_names):
            found = judge(history, PLACE / judge.__name__)
            wrong += not found.accepted
            _say(f"{len(history):,} events: {found.text}")
    for doctors, judge in ((MESSAGE_DOCTORS, judge_messages), (NAME_DOCTORS, judge_names)):
        for name, doctor in doctors.items():
            found = judge(doctor(reduced), PLACE / f"doctored-{name}")
            wrong += found.accepted
            _say(f"doctored, {name}: {'NOT REJECTED' if found.accepted else found.text}")
    _say(f"{time.monotonic() - began:.0f} s in TLC; {'WRONG' if wrong else 'all as it should be'}")
    return 1 if wrong else 0


def _events(path: Path | None) -> list[Event]:
    if path is not None and path.suffix == ".jsonl":
        return load(path)
    if path is None:
        path = run_directory(BOUNDED) / "history.json"
        report = Run(BOUNDED, path.parent, _say).execute()
        if report.violations:
            raise SystemExit(f"the chaos run itself failed: {report.violations[0]}")
    exported = PLACE / "history.jsonl"
    exported.parent.mkdir(parents=True, exist_ok=True)
    save(export(History.load(path)), exported)
    return load(exported)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
