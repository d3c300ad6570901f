"""`python -m headrace_broker.cli` is the command `headrace`."""

from __future__ import annotations

from headrace_broker.cli.main import main

if __name__ == "__main__":
    main(prog_name="headrace")
