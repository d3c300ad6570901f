"""Runs one suite against one broker."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from conformance.broker import RABBIT_HOST, Address, RabbitMQ, headrace_hosts, make_broker
from conformance.certificate import Certificates, make_certificates
from conformance.container import Daemon
from conformance.distribution import unpack
from conformance.recipe import Suite
from conformance.verdict import Verdict, judge, read_outcomes

PLUGIN: Final = Path(__file__).parent / "plugin"
SUITE_SECONDS_MAX: Final = 3600  # a suite that hangs in spite of its tests' own limits
RAN: Final = (0, 1)  # exit status of pytest and node when they got to the end


class Run(Struct, frozen=True):
    """Common settings of the suites of a run.

    Attributes:
        broker: its name.
        cache: where distributions and the environment are.
        python: the environment's interpreter.
        ci: whether only the bounded selection is asked for.
        only: pytest arguments in place of the recipe's, to look at single tests.
        lane: which of the suites that run beside each other it is: these share nothing.
    """

    broker: str
    cache: Path
    python: Path
    ci: bool
    only: tuple[str, ...] = ()
    lane: int = 0

    @property
    def hosts(self) -> tuple[str, str]:
        """Return the broker's address for clients, and its alternative."""
        if self.broker == RabbitMQ.name:
            return RABBIT_HOST, RABBIT_HOST
        return headrace_hosts(self.lane)[:2]

    @property
    def results(self) -> Path:
        """Return the folder of the suites' outcomes and outputs."""
        return self.cache / "results" / self.broker

    def selection(self, suite: Suite) -> tuple[str, ...]:
        """Return which of a suite's tests to run."""
        return self.only or (suite.ci if self.ci else suite.tests)


def run_suite(suite: Suite, run: Run) -> Verdict:
    """Run a suite against a fresh broker and return its verdict."""
    sources = unpack(suite, run.cache)
    made = run.cache / "certificates" / str(run.lane)
    certificates = prepare_certificates(suite, sources, made, run.hosts[0])
    run.results.mkdir(parents=True, exist_ok=True)
    record = run.results / f"{suite.name}.jsonl"
    record.unlink(missing_ok=True)
    with place(suite, run, certificates) as values:
        values |= {"certificates": str(made), "record": str(record)}
        started = time.monotonic()
        problem = run_tests(suite, run, sources, values)
        seconds = time.monotonic() - started
    complete = not (run.ci or run.only)
    return judge(read_outcomes(record), suite.expected_for(run.broker), problem, seconds, complete)


def prepare_certificates(suite: Suite, sources: Path, made: Path, host: str) -> Certificates:
    """Return what the broker's TLS listener shall use, and put the clients' where they look."""
    certificates = make_certificates(made, host)
    for target, source in suite.files.items():
        (sources / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / source, sources / target)
    if suite.tls:
        return Certificates(*(sources / name for name in suite.tls))
    return certificates


@contextlib.contextmanager
def place(suite: Suite, run: Run, certificates: Certificates) -> Iterator[dict[str, str]]:
    """Hold a broker, or a daemon that makes them, for as long as the suite runs.

    Yields:
        The values that the recipe's environment may name.
    """
    data = run.cache / "data" / f"{run.broker}-{run.lane}"
    shutil.rmtree(data, ignore_errors=True)
    host, other = run.hosts
    values = {"host": host, "other_host": other, "docker": ""}
    if suite.containers:
        with Daemon(
            host, lambda n: make_broker(run.broker, data / str(n), n, certificates, run.lane)
        ) as daemon:
            yield values | address_values(Address.at(host, 0)) | {"docker": daemon.url}
        return
    broker = make_broker(run.broker, data / "0", 0, certificates, run.lane)
    try:
        broker.start()
        yield values | address_values(broker.address)
    finally:
        broker.remove()


def address_values(address: Address) -> dict[str, str]:
    """Return an address as values for a recipe's environment."""
    return {
        "port": str(address.port),
        "tls_port": str(address.tls_port),
        "http_port": str(address.http_port),
    }


def run_tests(suite: Suite, run: Run, sources: Path, values: dict[str, str]) -> str:
    """Run the suite's tests; return why they did not run to the end, empty if they did."""
    command = (
        node_command(suite, run, values) if suite.runner == "node" else pytest_command(suite, run)
    )
    output = run.results / f"{suite.name}.log"
    with output.open("wb") as file:
        try:
            done = subprocess.run(
                command,
                cwd=sources,
                env=environment(suite, run, sources, values),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=SUITE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not through after {SUITE_SECONDS_MAX} s, see {output}"
    if done.returncode in RAN:
        return ""
    return f"the tests' runner ended with {done.returncode}, see {output}"


def environment(suite: Suite, run: Run, sources: Path, values: dict[str, str]) -> dict[str, str]:
    """Return the variables that the suite's tests see: few of ours, and the recipe's."""
    common = {
        "PATH": f"{run.python.parent}:{os.environ['PATH']}",
        "HOME": str(sources),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(PLUGIN),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CONFORMANCE_RECORD": values["record"],
        "CONFORMANCE_HOST": values["host"],
        "CONFORMANCE_PORT": values["port"],
        "CONFORMANCE_TLS_PORT": values["tls_port"],
    }
    own = {name: value.format_map(values) for name, value in suite.environment.items()}
    return common | own


def pytest_command(suite: Suite, run: Run) -> list[str]:
    """Return how to run a suite of Python tests."""
    command = [str(run.python), "-m", "pytest", "-p", "conformance_plugin"]
    command += ["-p", "no:cacheprovider", "-q", "--tb=short", "-o", "log_cli=false", "--rootdir=."]
    command += [f"--timeout={suite.seconds}", *suite.arguments, *run.selection(suite)]
    return command + [
        f"--deselect={test}"
        for each in suite.deselected
        if run.broker in each.brokers
        for test in each.tests
    ]


def node_command(suite: Suite, run: Run, values: dict[str, str]) -> list[str]:
    """Return how to run a suite of Node.js tests."""
    reporters = ["--test-reporter=spec", "--test-reporter-destination=stdout"]
    reporters += ["--test-reporter=./recorder.mjs"]
    reporters += [f"--test-reporter-destination={values['record']}"]
    limit = f"--test-timeout={suite.seconds * 1000}"  # also of a file that hangs outside its tests
    return ["node", "--test", limit, *reporters, *suite.arguments, *run.selection(suite)]
