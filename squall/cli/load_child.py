"""The throw-away process that imports a topology file (see `load_limits`; `load_guard` forks it).

Reads a LoadRequest from stdin, writes Loaded or Refusal to a descriptor, and ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

import msgspec

from squall.cli.load_limits import Loaded, LoadRequest, Refusal, limit_memory
from squall.cli.loader import load_topology
from squall.engine.api.config import Config
from squall.engine.errors import UsageError
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, message_of, traceback_of
from squall.scheduler.client.topology_code import TopologyCode, pack


def import_and_answer(answer: int) -> NoReturn:
    """Run that process: import the file, and answer on descriptor `answer`."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LoadRequest)
    limit_memory(request.memory_bytes)
    try:
        outcome: Loaded | Refusal = Loaded(_load(request))
    except MemoryError as error:
        message = f"importing {request.target} took more than {request.memory_bytes} bytes of memory"
        outcome = Refusal(message, traceback_of(error))
    except BaseException as error:  # users' code may raise anything, even while a component is pickled
        outcome = Refusal(message_of(error, TRACEBACK_CHARACTERS), traceback_of(error))
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the file may have closed or replaced it
        sys.stdout.flush()
    with open(answer, "wb") as pipe:
        pipe.write(msgspec.msgpack.encode(outcome))
    # Not by a normal exit: threads that the file started must not keep this process alive.
    os._exit(0)


def _load(request: LoadRequest) -> TopologyCode:
    config = Config(**request.settings)
    try:
        loaded = load_topology(request.target, request.arguments, request.app_dir)
    except UsageError as error:
        if isinstance(error.__cause__, MemoryError):
            raise MemoryError from error
        raise
    return pack(loaded.topology, config, loaded.script, beside=loaded.root)
