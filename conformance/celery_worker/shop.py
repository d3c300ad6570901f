"""Tasks of ordinary Celery applications; only URL and backend are not Celery's defaults."""

import os
import time
from pathlib import Path

from celery import Celery

BROKER_URL = os.environ["BROKER_URL"]
RESULTS = Path(os.environ["HOME"]) / "results"
RESULTS.mkdir(exist_ok=True)

app = Celery("shop", broker=BROKER_URL, backend=f"file://{RESULTS}")
asking = Celery("asking", broker=BROKER_URL, backend="rpc://", set_as_current=False)
asking.conf.task_default_queue = "asking"


@app.task
def add(x, y):
    return x + y


@asking.task
def add_by_rpc(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def when():
    return time.time()


@app.task(bind=True, max_retries=3)
def flaky(self, fails):
    if self.request.retries < fails:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def slow_once(self, marker):
    """Wait at the first attempt, so that the worker can be killed; tell of it at the second."""
    started = Path(marker)
    if not started.exists():
        started.write_text(str(os.getpid()))
        time.sleep(120)
    return self.request.delivery_info["redelivered"]
