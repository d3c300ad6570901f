"""Number of open files of a node, also when it can open no more."""

from __future__ import annotations

import contextlib
import os
import resource

from headrace_broker.runtime.metrics.stats import open_files


def test_files_are_counted_when_there_are_no_more_to_be_had():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(map(int, os.listdir("/proc/self/fd"))) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        assert open_files() == limit
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 3 <= open_files() < limit + 8
