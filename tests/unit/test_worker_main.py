"""What the supervisor is told of a worker that ends before it has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import WorkerFailed
from squall.scheduler.worker import main


@pytest.mark.parametrize(("error", "says"), [
    (MemoryError("4 GiB"), "the worker has no memory left: MemoryError: 4 GiB"),
    (ClusterError("cannot listen on /r/s/x"), "cannot listen on /r/s/x"),
    (KeyError("x"), "internal error of the worker, a bug in Squall: KeyError: 'x'"),
])
def test_only_what_is_one_is_called_a_bug_in_squall(
    error: Exception, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[WorkerFailed] = []

    class Control:
        def __init__(self, *_: Any) -> None: ...

        def send_event(self, event: WorkerFailed) -> None:
            told.append(event)

        def close(self) -> None: ...

    def fails(boot: Any) -> Any:
        raise error

    class Boot:
        run_dir, node, sender, port, incarnation = str(RunDir.create(tmp_path / "r").path), "n", "s", 6700, 1

    monkeypatch.setattr(main, "Worker", fails)
    monkeypatch.setattr(main, "ControlClient", Control)
    boot: Any = Boot()
    with pytest.raises(type(error)):
        main.worker_main(boot)
    assert [(event.port, event.incarnation, event.error) for event in told] == [(6700, 1, says)]
