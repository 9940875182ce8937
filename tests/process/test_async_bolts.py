"""AsyncBolt on real workers: the page's program. The example is in test_applications.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.process.cli import ROOT, squall

PAGE = (ROOT / "docs" / "async.md").read_text()


def test_the_program_of_the_page(tmp_path: Path) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "fetch.py").write_text(program)
    for mode in ((), ("--local", "--set", "max_spout_pending=10")):
        text = program if not mode else program.replace("range(1000)", "range(20)")
        (tmp_path / "fetch.py").write_text(text)
        done = squall("run", tmp_path / "fetch.py", *mode, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["acked"] == report["components"]["fetch"]["executed"] == (20 if mode else 1000)
        if not mode:
            assert report["components"]["fetch"]["capacity"] > 1.5, "many were in flight"
