"""The throw-away process that imports a topology file (see `load_limits`; `load_guard` forks it).

Reads a LoadRequest from stdin, writes Loaded or Refusal to a descriptor, and ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

import msgspec

from squall.cli.help_shown import HelpShown
from squall.cli.layers import Layers
from squall.cli.load_limits import Loaded, LoadRequest, Refusal, limit_memory
from squall.cli.loader import load_topology
from squall.engine.errors import UsageError
from squall.engine.foreign.text import TRACEBACK_CHARACTERS, message_of, traceback_of
from squall.scheduler.client.topology_code import pack


def import_and_answer(answer: int) -> NoReturn:
    """Run that process: import the file, and answer on descriptor `answer`."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LoadRequest)
    limit_memory(request.memory_bytes)
    os.environ.update(request.environment)
    try:
        outcome: Loaded | Refusal = _load(request)
    except MemoryError as error:
        message = f"importing {os.fsdecode(request.target)} took more than {request.memory_bytes} bytes of memory"
        outcome = Refusal(message, traceback_of(error))
    except BaseException as error:  # users' code may raise anything, even while a component is pickled
        is_help = type(error) is HelpShown
        outcome = Refusal(message_of(error, TRACEBACK_CHARACTERS), traceback_of(error), is_help)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the file may have closed or replaced it
        sys.stdout.flush()
    with open(answer, "wb") as pipe:
        pipe.write(_encoded(outcome))
    # Not by a normal exit: threads that the file started must not keep this process alive.
    os._exit(0)


def _encoded(outcome: Loaded | Refusal) -> bytes:
    try:
        return msgspec.msgpack.encode(outcome)
    except UnicodeEncodeError as error:
        if isinstance(outcome, Loaded):
            # Such as the path of its directory, which the workers need for their imports.
            told = ascii(error.object)[:200]
            message = f"{told} of the topology is no valid UTF-8, as everything sent to Nimbus must be"
            return msgspec.msgpack.encode(Refusal(message, ""))
        message, trace = (
            text.encode(errors="backslashreplace").decode() for text in (outcome.message, outcome.traceback)
        )
        return msgspec.msgpack.encode(Refusal(message, trace, outcome.is_help))


def _load(request: LoadRequest) -> Loaded:
    try:
        arguments = [os.fsdecode(argument) for argument in request.arguments]
        app_dir = None if request.app_dir is None else os.fsdecode(request.app_dir)
        loaded = load_topology(os.fsdecode(request.target), arguments, app_dir)
    except UsageError as error:
        if isinstance(error.__cause__, MemoryError):
            raise MemoryError from error
        raise
    config = Layers(request.below, request.above).config(loaded.topology.config)
    code = pack(loaded.topology, config, loaded.script, beside=loaded.root)
    return Loaded(code, config.to_dict())
