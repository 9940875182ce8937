"""What supervisors did in a test, judged from what they wrote down."""

from __future__ import annotations

from squall.ipc.rundir import RunDir
from squall.scheduler.common.restart_policy import RestartPolicyOptions
from squall.scheduler.records.worker_ledger import read_history
from tests.history_rules import violations


def broken_rules(run_dir: RunDir) -> list[str]:
    """Called while the run directory is there. The history must hold something: an empty one breaks no rule."""
    steps = read_history(run_dir.logs)
    assert steps, f"no history in {run_dir.logs}"
    policy = RestartPolicyOptions()
    return violations(steps, policy.max_deaths, policy.period_secs)
