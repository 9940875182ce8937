"""Every process of a cluster by its role, as `squall ps` and the system's own ps show it."""

from __future__ import annotations

from pathlib import Path

from squall.scheduler.common.role import RoleKind, processes_of
from tests.process.standing_tools import ENDLESS, Standing, directory
from tests.process.waiting import wait_for


def test_ps_lists_every_process(standing: Standing) -> None:
    standing.ok("submit", ENDLESS, "--name", "two words", "--workers", "2")

    def seen() -> list[tuple[str, str | None, str | None]]:
        return [(row["role"], row["node"], row["topology"]) for row in standing.json("ps")["processes"]]

    spare = ("spare", "node-1", "two words")
    wait_for("the spare", lambda: spare in seen())
    wait_for("its workers", lambda: [w.state for w in standing.described("two words").workers] == ["ready"] * 2)
    assert seen() == [
        ("keeper", None, None), ("nimbus", None, None), ("supervisor", "node-1", None),
        ("forking parent", "node-1", None), *[("worker", "node-1", "two words")] * 2, spare,
    ]
    rows = {row["pid"]: row for row in standing.json("ps")["processes"]}
    workers = {row.worker: row.pid for row in standing.described("two words").workers}
    assert {f"node-1:{rows[pid]['port']}": pid for pid in workers.values()} == workers
    table = standing.ok("ps")
    assert len(table.splitlines()) == 8
    assert all(str(pid) in table for pid in rows)

    # Names are cut by the kernel, command lines are not.
    shown = [Path(f"/proc/{pid}/{file}").read_text().rstrip("\0\n") for pid in rows for file in ("comm", "cmdline")]
    names = ["forking parent node-1", "keeper", "nimbus", "supervisor node-1", "spare node-1 two words"]
    names += [f"worker {worker} two words" for worker in workers]
    full = [f"squall: {name}" for name in names]
    assert sorted(shown) == sorted([*full, *(name[:15] for name in full)])


def test_ps_needs_no_nimbus(standing: Standing) -> None:
    with standing.keeper_held():
        standing.nimbus().kill()
        wait_for("its end", lambda: not processes_of(standing.run_dir, RoleKind.NIMBUS))
        assert "nimbus" not in [row["role"] for row in standing.json("ps")["processes"]]
    standing.nimbus()
    with directory() as nothing:
        assert "there is no cluster at" in nothing.refused(2, "ps")
