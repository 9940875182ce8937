"""The throw-away process that imports a topology file: ``python -m squall.cli.load_child FD`` (see `load_limits`).

Reads a LoadRequest from stdin, writes Loaded or Refusal to descriptor FD, and ends.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec

from engine.config import Config
from engine.errors import SquallError, UsageError
from scheduler.topology_code import TopologyCode, pack
from squall.cli.load_limits import Loaded, LoadRequest, Refusal, limit_memory
from squall.cli.loader import load_topology


def main(answer: int) -> None:
    # The file's own children must not keep the answer open.
    os.set_inheritable(answer, False)
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=LoadRequest)
    limit_memory(request.memory_bytes)
    try:
        outcome: Loaded | Refusal = Loaded(_load(request))
    except SquallError as error:
        outcome = Refusal(str(error), traceback.format_exc())
    except MemoryError:
        message = f"importing {request.target} took more than {request.memory_bytes} bytes of memory"
        outcome = Refusal(message, traceback.format_exc())
    sys.stdout.flush()
    with open(answer, "wb") as pipe:
        pipe.write(msgspec.msgpack.encode(outcome))
    # Not by the normal way: threads that the file has started must not keep this process alive.
    os._exit(0)


def _load(request: LoadRequest) -> TopologyCode:
    config = Config(**request.settings)
    try:
        topology, module = load_topology(request.target, request.arguments)
    except UsageError as error:
        if isinstance(error.__cause__, MemoryError):
            raise MemoryError from error
        raise
    return pack(topology, config, module, beside=Path(str(module.__file__)).parent)


if __name__ == "__main__":
    main(int(sys.argv[1]))
