"""The file of the faults in force, `faults.json` of a run directory.

Guarantees
    * It is there whole or not at all, and only Nimbus writes it. Without faults there is no file.
    * A fault that has ended stays in it for KEPT_SECS, for carriers that were away meanwhile: a supervisor that was
      killed while its worker was stopped still finds that it has to continue it.

Process: any of the owner's may read it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from squall.engine.errors import ClusterError
from squall.ipc.private import gone_if_failed
from squall.ipc.rundir import RunDir
from squall.scheduler.faults.in_force import FaultInForce

KEPT_SECS = 30.0
"""Longer than a keeper's pause before it restarts a daemon, and than a supervisor lets a stopped worker live."""

_DECODER = msgspec.json.Decoder(list[FaultInForce])


def read_faults(run_dir: RunDir) -> list[FaultInForce]:
    """All faults in the file, also those that have ended. ClusterError if it cannot be read."""
    path = run_dir.faults_in_force
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ClusterError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{path} is damaged: {error}") from None


def faults_now(run_dir: RunDir, now: float) -> list[FaultInForce]:
    """The faults in force."""
    return [fault for fault in read_faults(run_dir) if fault.is_in_force(now)]


def write_faults(run_dir: RunDir, faults: Sequence[FaultInForce]) -> None:
    """Replace the file's faults; no file for none. ClusterError, and no change, if there is no room."""
    path = run_dir.faults_in_force
    temporary = path.with_name(f"{path.name}.new")
    try:
        if not faults:
            path.unlink(missing_ok=True)
            return
        with gone_if_failed(temporary):
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(faults))
            temporary.rename(path)
    except OSError as error:
        raise ClusterError(f"cannot write {path}: {error.strerror}") from error
