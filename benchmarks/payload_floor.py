"""The fastest that values can pass between two processes if each is copied once and checked by both: no engine, no
sockets, no acks; a few blocks of shared memory that stay warm, and two words that say how far each process is."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

_LEAST_BLOCKS, _WARM_BYTES = 4, 4 << 20
_WRITTEN, _READ, _ENDS = 0, 8, 16
"""Indices of words, each in a cache line of its own."""
_WORDS_BYTES = 4096


def passing_rate(values: Sequence[bytes], secs: float = 0.3) -> float:
    """Bytes per second of such values, all of one size."""
    size = len(values[0])
    n_blocks = max(_LEAST_BLOCKS, _WARM_BYTES // size)
    memory = memoryview(mmap.mmap(-1, _WORDS_BYTES + n_blocks * size))
    words, room = memory[:_WORDS_BYTES].cast("Q"), memory[_WORDS_BYTES:]
    blocks = [room[at * size : (at + 1) * size] for at in range(n_blocks)]
    reader = os.fork()
    if not reader:
        _read(words, blocks)
        os._exit(0)
    written, ends, began = 0, 0.0, 0.0
    for ends in (0.1, secs):  # once to warm up
        began, before = time.perf_counter(), written
        while time.perf_counter() - began < ends:
            if written - words[_READ] >= n_blocks:
                os.sched_yield()
                continue
            value = values[written % len(values)]
            blocks[written % n_blocks][:] = value
            xxh3_64_intdigest(value)
            written += 1
            words[_WRITTEN] = written
    rate = (written - before) * size / (time.perf_counter() - began)
    words[_ENDS] = 1
    os.waitpid(reader, 0)
    return rate


def _read(words: memoryview[int], blocks: Sequence[memoryview]) -> None:
    read = 0
    while not words[_ENDS]:
        if read == words[_WRITTEN]:
            os.sched_yield()
            continue
        xxh3_64_intdigest(blocks[read % len(blocks)])
        read += 1
        words[_READ] = read
