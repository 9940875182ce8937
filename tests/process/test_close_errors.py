"""What a task raises at its end: told, with exit code 1, on workers and with --local alike."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process.cli import squall
from tests.process.test_wrong_input import HEAD

SET_FAIL = ("--set", "on_error=fail")

RAISES = HEAD + """
class Bad(Nothing):
    def cleanup(self):
        raise SystemExit(0)
class Ends(One):
    def close(self):
        raise ValueError("h\\n\\x1b]0;T")
topology = build(Ends(), Bad())

class Interrupts(Nothing):
    def execute(self, tup, collector):
        raise KeyboardInterrupt
interrupts = build(One(), Interrupts())
"""


def test_errors_of_close_and_cleanup_make_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(RAISES)
    for where in ("--local", "--quiet"):
        done = squall("run", file, "--json", where)
        assert done.returncode == 1, done.stderr
        report = json.loads(done.stdout)
        assert report["drained"]
        assert sorted(report["close_errors"]) == [
            "nothing[2] raised SystemExit: 0 in cleanup", "one[3] raised ValueError: h in close",
        ]
        assert "one[3] raised ValueError: h in close\n" in done.stderr
        assert "\x1b" not in done.stderr


def test_an_interrupt_that_a_component_raises_is_its_error(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(RAISES)
    done = squall("run", f"{file}:interrupts", "--local", "--quiet", "--set", "on_error=crash")
    assert (done.returncode, "interrupted" in done.stderr) == (1, False)
    assert "nothing[2] raised KeyboardInterrupt in execute" in done.stderr
    done = squall("run", f"{file}:interrupts", "--local", "--quiet", "--set", "max_attempts=1", *SET_FAIL)
    assert done.returncode == 3
