"""Other numbers of tasks, and other windows, of a topology that runs: state goes on, or nothing happens.

`tests/chaos/test_exact_user.py` has other numbers with exact results.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from squall.engine.state.reading import rows_of
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

RECORDS, WORDS = 600, 17
FILE = """
    from pathlib import Path
    from squall import StatefulBolt, TopologyBuilder, WindowedBolt, bolt, spout

    @spout("word", "at")
    def words(start):
        for number in range(start, RECORDS):
            while number >= 200 and not Path(GATE).exists():
                yield None
            yield f"w{number % WORDS}", float(number)

    class Count(StatefulBolt):
        outputs = ("word",)

        def execute(self, tup, collector):
            word = tup["word"]
            self.state[word] = self.state.get(word, 0) + 1
            self.state.setdefault("totals", 0)

    class Sessions(WindowedBolt):
        outputs = ("word", "count")

        def execute_window(self, window, collector):
            collector.emit((window.key, len(window.get())))

    class Sizes(StatefulBolt):
        outputs = ()

        def execute(self, tup, collector):
            self.state[tup.values] = self.state.get(tup.values, 0) + 1

    def topology(args):
        tasks, gap = int(args[0]), float(args[1])
        builder = TopologyBuilder()
        builder.set_spout("words", words)
        builder.set_bolt("count", Count(), parallelism=tasks).fields_grouping("words", "word")
        sessions = Sessions().with_session_window(gap_secs=gap).with_key("word").with_timestamp_field("at")
        builder.set_bolt("sessions", sessions, parallelism=tasks).fields_grouping("words", "word")
        builder.set_bolt("sizes", Sizes()).shuffle_grouping("sessions")
        return builder.build()
"""


def write(path: Path, gate: Path) -> Path:
    text = textwrap.dedent(FILE).replace("GATE", repr(str(gate))).replace("RECORDS", str(RECORDS))
    path.write_text(text.replace("WORDS", str(WORDS)))
    return path


def keys(standing: Standing, component: str) -> list[dict[str, Any]]:
    return list(rows_of(standing.run_dir.topology_state("app"), component))


def counted(standing: Standing) -> int:
    return sum(row["value"] for row in keys(standing, "count"))


def test_windows_are_dealt_and_what_cannot_be_taken_up_is_refused(standing: Standing, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = write(tmp_path / "app.py", gate)
    standing.ok("submit", app, "--name", "app", "--", "2", "1200")
    wait_for("the first part", lambda: counted(standing) == 200)
    assert "nothing was pending" in standing.ok("rebalance", "app", "-t", "sessions=4")
    assert counted(standing) == 200
    assert standing.described("app").components["sessions"].tasks_fixed == 4
    again = "submit", app, "--name", "app", "--replace"
    before = standing.json("status", "app")["id"]
    assert standing.refused(1, *again, "--", "2", "1800") == (
        "sessions is declared with session gap 30 min; 17 open windows were declared with session gap 20 min: "
        "keep that until they have ended, or drop them (--drop-windows)"
    )
    for command in ((*again, "--", "3", "1200"), ("rebalance", "app", "--tasks", "count=3")):
        refused = standing.refused(1, *command)
        assert "of count was made by 2 tasks and cannot be dealt to 3: task" in refused
        assert "has state['totals'], which is not there by what the input is grouped by; keep tasks=2" in refused
    assert "component 'sizes' cannot have 2 tasks" in standing.refused(2, "rebalance", "app", "-t", "sizes=2")
    assert standing.json("status", "app")["id"] == before
    done = standing.run(*again, "--drop-windows", "--", "2", "1800")
    assert done.returncode == 0
    assert "17 open windows of sessions, declared otherwise, will be dropped" in done.stderr
    gate.touch()
    wait_for("every record", lambda: counted(standing) == RECORDS)
    wait_for("what came since", lambda: sum(row["value"] for row in keys(standing, "sizes")) == WORDS)
