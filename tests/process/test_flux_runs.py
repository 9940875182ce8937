"""Flux files as people use them: docs/flux.md says what the commands do."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from squall.connect.flux import JAVA_CLASSES
from squall.connect.flux_file import read_flux
from tests.needs import require
from tests.process.cli import ROOT, squall
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.process.written import whole_lines

PAGE = (ROOT / "docs" / "flux.md").read_text()
FOLDER = ROOT / "examples" / "flux"
STREAMPARSE = ROOT / "build" / "streamparse" / "bin" / "python"


def words_of(text: str) -> Counter[str]:
    return Counter(word for word in text.lower().split() if word not in ("the", "and", "a"))


def counts(out: Path) -> dict[str, int]:
    """What the sink has written; every number of a word is there once."""
    rows = [json.loads(line) for path in out.glob("part-*.jsonl") for line in whole_lines(path)]
    assert len({(row["word"], row["count"]) for row in rows}) == len(rows)
    return dict(Counter(row["word"] for row in rows))


def test_every_command_of_the_page(standing: Standing, tmp_path: Path) -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert block == (FOLDER / "topology.yaml").read_text()
    commands = [shlex.split(line)[1:] for line in re.findall(r"^squall (?!:).*--.*$", PAGE, re.MULTILINE)]
    assert [command[0] for command in commands] == ["run", "spark", "submit"]
    expected = words_of((ROOT / "README.md").read_text())
    run, plan, submit = ([*command, f"out={tmp_path / command[0]}"] for command in commands)
    done = squall(*run)
    assert done.returncode == 0, done.stderr
    assert "words drained" in done.stdout
    assert counts(tmp_path / "run") == expected
    done = squall(*plan)
    assert done.returncode == 5, done.stderr
    assert re.search(r"EXACT +edge +lines -> split", done.stdout)
    told = standing.json(*submit)
    assert (told["name"], told["workers_wanted"]) == ("words", 2)
    wait_for("every word", lambda: counts(tmp_path / "submit") == expected)
    standing.ok("kill", "words")


def test_the_command_line_wins_and_the_modules_travel(standing: Standing, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "flux")
    file = tmp_path / "flux" / "topology.yaml"
    arguments = ("--", "parallelism=1", f"text={ROOT / 'README.md'}", f"out={tmp_path / 'out'}")
    told = standing.json("submit", file, "--name", "other", "--workers", "1", "--inactive", *arguments)
    assert (told["name"], told["workers_wanted"]) == ("other", 1)
    shutil.rmtree(tmp_path / "flux")
    # Its next worker has only what was submitted.
    standing.ok("rebalance", "other", "--workers", "2")
    standing.ok("activate", "other")
    wait_for("every word", lambda: counts(tmp_path / "out") == words_of((ROOT / "README.md").read_text()))
    standing.ok("kill", "other")


def test_wrong_use_is_one_line(standing: Standing, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "flux")
    file = tmp_path / "flux" / "topology.yaml"
    good = file.read_text()
    given = ("--", "parallelism=1", "text=README.md", f"out={tmp_path / 'out'}")
    file.write_text(good.replace("words.Count", "words.Cuont"))
    [shown] = re.findall(r"^squall: .*$", PAGE, re.MULTILINE)
    for arguments in (("run", file), ("spark", "plan", file), ("submit", file)):
        assert standing.run(*arguments, *given) == (2, "", shown.replace("topology.yaml", str(file), 1) + "\n")
    file.write_text(good.replace("name: words\n", ""))
    assert standing.refused(2, "submit", file, *given).startswith("--name is missing")
    assert standing.json("list")["topologies"] == []


PROJECT = """\
import json
from streamparse import Bolt, Grouping, Spout, Stream, Topology

class Lines(Spout):
    outputs = ["line"]

class Split(Bolt):
    outputs = [Stream(fields=["word"]), Stream(fields=["line"], name="bad")]

class Words(Topology):
    lines = Lines.spec()
    split = Split.spec(inputs=[lines], par=2)
    count = Split.spec(inputs={split: Grouping.fields("word"), split["bad"]: Grouping.ALL})

print(json.dumps(Words.to_flux_dict("words")))
"""


def test_a_file_of_streamparse_is_understood(tmp_path: Path) -> None:
    require("streamparse")
    done = subprocess.run([STREAMPARSE, "-W", "ignore", "-c", PROJECT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Each document of JSON is one of YAML.
    (tmp_path / "words.yaml").write_text(done.stdout)
    file = read_flux(str(tmp_path / "words.yaml"), [])
    assert {each.class_name for each in (*file.spouts, *file.bolts)} == set(JAVA_CLASSES)
    assert {each.id: each.parallelism for each in file.bolts} == {"split": 2, "count": 1}
    assert sorted((each.from_, each.to, each.grouping.type, each.grouping.stream_id) for each in file.streams) == [
        ("lines", "split", "SHUFFLE", "default"), ("split", "count", "ALL", "bad"),
        ("split", "count", "FIELDS", "default"),
    ]
