"""Submissions against the ends of other topologies: what Nimbus accepted has all its code."""

from __future__ import annotations

import threading
from pathlib import Path

from squall.engine.api.config import Config
from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.topology_code import TopologyCode, submit
from tests.process.test_nimbus_process import COMPONENTS, NimbusDaemon

ROUNDS = 30


def come_and_go(run_dir: RunDir, name: str, missing: list[str]) -> None:
    """Submit and kill one topology after the other; none has a slot, so each is gone at once."""
    with NimbusClient(run_dir) as client:
        for number in range(ROUNDS):
            text = f"{name}-{number}".encode()
            code = TopologyCode(b"blob " + text, COMPONENTS, ["lib"], b"modules " + text * 20_000)
            try:
                record = submit(client, run_dir, name, Config(), code)
            except (ClusterError, OSError) as error:
                missing.append(f"{name}: {error}")
                continue
            missing += [entry for entry in record.sys_path[:1] if not Path(entry).exists()]
            client.kill_topology(name)


def test_submissions_against_ends_of_others() -> None:
    run_dir = RunDir.create()
    missing: list[str] = []
    nimbus = NimbusDaemon(run_dir)
    try:
        threads = [threading.Thread(target=come_and_go, args=(run_dir, name, missing)) for name in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        nimbus.close()
        run_dir.remove()
    assert missing == []
