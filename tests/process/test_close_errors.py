"""What a task raises at its end: told, with exit code 1, on workers and with --local alike."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process.cli import squall
from tests.process.test_wrong_input import HEAD

RAISES = HEAD + """
class Bad(Nothing):
    def cleanup(self):
        raise SystemExit(0)
class Ends(One):
    def close(self):
        raise ValueError("h\\n\\x1b]0;T")
topology = build(Ends(), Bad())
"""


def test_errors_of_close_and_cleanup_make_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(RAISES)
    for where in ("--local", "--quiet"):
        done = squall("run", file, "--json", where)
        assert done.returncode == 1, done.stderr
        report = json.loads(done.stdout)
        assert report["drained"]
        assert sorted(error.partition(f" ({file}, line ")[0] for error in report["close_errors"]) == [
            "nothing[2] raised SystemExit: 0 in cleanup", "one[3] raised ValueError: h in close",
        ]
        assert f"one[3] raised ValueError: h in close ({file}, line " in done.stderr
        assert "\x1b" not in done.stderr
