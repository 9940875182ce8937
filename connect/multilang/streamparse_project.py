"""Runs a streamparse project as it is: `squall run --streamparse DIR [NAME]`.

Guarantees: the project's own interpreter imports its topology and runs its components; this process imports nothing of
it. Whatever is missing or cannot be run here is one UsageError.

Relies on: `connect.multilang.streamparse_reader`, which tells what the topology consists of.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall.connect.multilang.shell_bolt import ShellBolt
from squall.connect.multilang.shell_component import ShellSpout
from squall.engine.api.config import Config, canonical_name
from squall.engine.api.stream import Stream
from squall.engine.api.topology import Topology
from squall.engine.build.builder import BoltDeclarer, TopologyBuilder
from squall.engine.errors import UsageError
from squall.engine.foreign.text import plain

_RUNNER = "streamparse_run"
_PLAIN = ("shuffle", "all", "none", "direct", "local_or_shuffle")


def topology(arguments: Sequence[str]) -> Topology:
    """Build the topology NAME of the project in a directory; its only one if no NAME is given."""
    if not 1 <= len(arguments) <= 2:
        raise UsageError("a streamparse project is named by DIR [NAME]: its folder, and a topology in it")
    project, name = Path(arguments[0]).resolve(), "".join(arguments[1:])
    file, binaries = _file(project, name), _binaries(project)
    found = _read(binaries / "python", file, project)
    builder = TopologyBuilder(Config(**_known(found["config"])))
    for one in found["components"]:
        _declare(builder, one, binaries, project)
    return builder.build()


def _file(project: Path, name: str) -> Path:
    settings, folder = project / "config.json", project / "topologies"
    if settings.is_file():
        folder = project / json.loads(settings.read_bytes()).get("topology_specs", folder)
    files = {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}
    if not name and len(files) == 1:
        return next(iter(files.values()))
    if not files:
        raise UsageError(f"{project} is no streamparse project: it has no topology in {folder}")
    if name not in files:
        raise UsageError(f"{project} has no topology {name!r}; allowed: {', '.join(files)}")
    return files[name]


def _binaries(project: Path) -> Path:
    """The folder of the interpreter that has streamparse."""
    own = [project / ".venv" / "bin" / _RUNNER, project / "venv" / "bin" / _RUNNER]
    found = next(map(str, filter(Path.is_file, own)), None) or shutil.which(_RUNNER)
    if found is None:
        raise UsageError(
            f"there is no {_RUNNER} for {project}; install streamparse in {project / '.venv'}, or activate the "
            "project's environment"
        )
    return Path(found).parent


def _read(python: Path, file: Path, project: Path) -> dict[str, Any]:
    reader = Path(__file__).with_name("streamparse_reader.py")
    command = [python, reader, file]
    done = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True, errors="replace")
    if done.returncode:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UsageError(f"{file} cannot be read by {python}: {why}")
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def _known(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without the settings that only Storm has."""
    only_storms = [key for key in config if key.startswith("topology.") and canonical_name(key) is None]
    if only_storms:
        sys.stderr.write(f"squall: left out, as only Storm has it: {plain(', '.join(only_storms))}\n")
    return {key: value for key, value in config.items() if key not in only_storms}


def _declare(builder: TopologyBuilder, one: Mapping[str, Any], binaries: Path, project: Path) -> None:
    name, command = one["name"], one["command"]
    if command is None:
        raise UsageError(f"component {name!r} is written in Java, which Squall does not run")
    if command[0] == _RUNNER:
        command = [str(binaries / _RUNNER), *command[1:]]
    outputs = {stream: Stream(*fields, direct=bool(direct)) for stream, (fields, direct) in one["outputs"].items()}
    tasks, settings = one["tasks"], _known(one["config"])
    if not one["inputs"]:
        builder.set_spout(name, ShellSpout(command, outputs, directory=project / "src"), tasks).set_config(**settings)
        return
    bolt = builder.set_bolt(name, ShellBolt(command, outputs, directory=project / "src"), tasks).set_config(**settings)
    for source, stream, kind, fields in one["inputs"]:
        _subscribe(bolt, name, (source, stream, kind, fields))


def _subscribe(bolt: BoltDeclarer, name: str, given: tuple[str, str, str, Sequence[str]]) -> None:
    source, stream, kind, fields = given
    if kind == "fields" and fields:
        bolt.fields_grouping(source, *fields, stream=stream)
    elif kind == "fields":
        bolt.global_grouping(source, stream)
    elif kind in _PLAIN:
        getattr(bolt, f"{kind}_grouping")(source, stream)
    else:
        raise UsageError(f"bolt {name!r} reads {source!r} by a grouping written in Java ({kind}); Squall has no Java")
