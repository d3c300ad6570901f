"""Celery as it comes, with workers that are processes of their own."""

import datetime
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import shop
from celery import chain, chord, group

HERE = Path(__file__).parent
TIMEOUT = 60


class Worker:
    """A `celery worker` process with its children."""

    def __init__(self, name, *arguments, app):
        self.name = name
        self.log = HERE / f"{name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@%h"]
                + ["--concurrency", "2", "--loglevel", "INFO", *arguments],
                cwd=HERE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_for(self, text):
        deadline = time.monotonic() + TIMEOUT
        while text not in self.log.read_text(errors="replace"):
            assert self.process.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")
            time.sleep(0.1)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(TIMEOUT) == 0, self.log.read_text(errors="replace")

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(TIMEOUT)


@pytest.fixture(scope="module")
def start():
    started = []

    def start_worker(name, *arguments, app="shop:app"):
        worker = Worker(name, *arguments, app=app)
        started.append(worker)
        worker.wait_for(" ready.")
        return worker

    yield start_worker
    for worker in started:
        worker.kill()


@pytest.fixture(scope="module")
def worker(start):
    started = start("first")
    yield started
    started.stop()


@pytest.mark.usefixtures("worker")
class TestOneWorker:
    def test_results_come_back(self):
        results = [shop.add.delay(number, 1) for number in range(50)]
        assert [result.get(timeout=TIMEOUT) for result in results] == list(range(1, 51))

    def test_chord_and_chain(self):
        header = group(shop.add.s(number, number) for number in range(10))
        assert chord(header)(shop.total.s()).get(timeout=TIMEOUT) == 90
        assert chain(shop.add.s(1, 2), shop.add.s(3))().get(timeout=TIMEOUT) == 6

    def test_retries(self):
        assert shop.flaky.delay(2).get(timeout=TIMEOUT) == 2
        with pytest.raises(shop.flaky.MaxRetriesExceededError):
            shop.flaky.delay(9).get(timeout=TIMEOUT)

    def test_countdown_and_eta(self):
        asked = time.time()
        assert shop.when.apply_async(countdown=2).get(timeout=TIMEOUT) - asked >= 2
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
        assert shop.when.apply_async(eta=due).get(timeout=TIMEOUT) >= due.timestamp()

    def test_tasks_that_are_not_due_hold_no_others_up(self):
        # More than the worker's prefetch, which it raises for each of them.
        late = [shop.when.apply_async(countdown=15) for _ in range(10)]
        done = shop.when.delay().get(timeout=TIMEOUT)
        assert done < min(result.get(timeout=TIMEOUT) for result in late)

    def test_expired_tasks_are_not_run(self):
        late = shop.add.apply_async((1, 1), countdown=1.5, expires=0.5)
        with pytest.raises(Exception, match="expired"):
            late.get(timeout=TIMEOUT)

    def test_control_reaches_the_worker(self):
        [(name, answer)] = shop.app.control.inspect(timeout=10).ping().items()
        assert (name.split("@")[0], answer) == ("first", {"ok": "pong"})

    def test_a_revoked_task_is_not_run(self, worker):
        result = shop.add.apply_async((1, 1), countdown=3)
        worker.wait_for(f"[{result.id}] received")
        result.revoke()
        with pytest.raises(Exception, match="revoked"):
            result.get(timeout=TIMEOUT)


def test_results_come_back_by_rpc(start):
    asked = start("asked", app="shop:asking")
    results = [shop.add_by_rpc.delay(number, 1) for number in range(20)]
    assert [result.get(timeout=TIMEOUT) for result in results] == list(range(1, 21))
    asked.stop()


def test_a_task_with_acks_late_survives_the_kill_of_its_worker(start, tmp_path):
    marker = tmp_path / "started"
    queue = f"late-{uuid.uuid4().hex}"
    first = start("doomed", "-Q", queue)
    result = shop.slow_once.apply_async((str(marker),), queue=queue)
    deadline = time.monotonic() + TIMEOUT
    while not (marker.exists() and marker.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.kill()
    second = start("heir", "-Q", queue)
    assert result.get(timeout=TIMEOUT) is True
    second.stop()
