"""Memory that a worker has freed is there when it is needed again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys
from squall.scheduler.worker.main import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory(os.environ)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    values = [bytes([number]) * (1 << 20) for number in range(20)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(kept, faults())
"""


def page_faults(how: str, **variables: str) -> tuple[bool, int]:
    """Whether it was set, and page faults of 20 MiB that were used before."""
    environment = {name: text for name, text in os.environ.items() if "MALLOC" not in name and "GLIBC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], env=environment | variables, capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    return kept == "True", int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings")
def test_values_find_the_memory_of_those_before_them() -> None:
    assert page_faults("as it is")[1] > 1000
    kept, faults = page_faults("kept")
    assert kept
    assert faults < 500
