"""The set-up. `squall doctor` tells what is missing or misset on this machine, with its mend: `read_facts` reads,
`findings` judges. `squall config` shows every setting with its value, key and meaning, and where its value comes from.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click

from squall.cli.cluster_access import directory_option
from squall.cli.loader import load_topology
from squall.cli.options import json_option, use_settings_beside
from squall.cli.output import reserve_stdout, say, say_json
from squall.cli.screen import Cell, Grid, show
from squall.cli.settings import layers_of, settings_option
from squall.ipc.arena import NOT_DUMPABLE, may_be_read
from squall.scheduler.client.standing import cluster_path
from squall.scheduler.common.daemon import FILE_BYTES

OK, COULD_BE_BETTER, MISSING = "ok", "could be better", "missing"
_STYLES = {OK: "green", COULD_BE_BETTER: "yellow", MISSING: "bold red"}
_MIB = 1 << 20
_CGROUPS = Path("/sys/fs/cgroup")
_EXTRAS = {
    "spark": ("numpy", "pandas", "pyarrow", "pyspark"), "ui": ("nicegui", "prometheus_client", "textual"),
    "amqp": ("pika",), "kafka": ("confluent_kafka",), "redis": ("hiredis", "redis"), "otlp": ("opentelemetry",),
    "thrift": ("thriftpy2",), "zookeeper": ("kazoo",),
}


@dataclass(frozen=True)
class Facts:
    """This machine, as far as Squall is concerned. None: unknown, or no quota."""

    java: int | None = 21
    open_files: int = sys.maxsize  # the hard limit, to which the daemons raise theirs
    processes: int = sys.maxsize
    file_bytes: int = sys.maxsize
    disk_bytes: int = 1 << 40
    """Free where the run directory is."""
    directory: str = ""
    python_configured: str = "--enable-optimizations"
    python_is_debug: bool = False
    cores: int = 2
    quota_cores: float | None = None
    throttled: int = 0
    """Periods in which the quota stopped the control group."""
    absent: tuple[str, ...] = ()
    """Extras that are not installed."""
    ptrace_scope: int | None = None
    dumpable: bool = True


class Diagnosis(NamedTuple):
    """A line of `squall doctor`."""

    what: str
    state: str
    found: str
    mend: str
    """"" if it is ok."""


def findings(facts: Facts) -> list[Diagnosis]:
    """Judge each fact. What Squall cannot run without is MISSING."""
    quota, extras = facts.quota_cores or float("inf"), ", ".join(facts.absent)
    is_built = "--enable-optimizations" in facts.python_configured and not facts.python_is_debug
    built = f"built with{'' if is_built else 'out'} profile-guided optimisation"
    rows = [
        ("open files", facts.open_files >= 256, facts.open_files >= 4096, _limit(facts.open_files),
         "ulimit -n 65536, or LimitNOFILE= in the unit"),
        ("processes", facts.processes >= 64, facts.processes >= 1024, _limit(facts.processes),
         "ulimit -u 4096, or TasksMax= in the unit"),
        ("file bytes", facts.file_bytes >= FILE_BYTES, facts.file_bytes >= 1024 * _MIB, _limit(facts.file_bytes),
         "ulimit -f unlimited, or LimitFSIZE=infinity in the unit"),
        ("disk", facts.disk_bytes >= 16 * _MIB, facts.disk_bytes >= 1024 * _MIB,
         f"{facts.disk_bytes // _MIB:,} MiB free at {facts.directory}", "make room, or choose a place with --dir"),
        ("cores", True, facts.cores >= 2 and quota >= facts.cores,
         f"{facts.cores}" + (f", of which a quota allows {quota:g}" if quota < facts.cores else ""),
         "give it two cores (taskset, cpuset), and no quota below them (--cpus, CPUQuota=)"),
        ("time slices", True, not facts.throttled, f"stopped {facts.throttled:,} times by its group's quota",
         "pin it to cores (--cpuset-cpus, AllowedCPUs=) in place of the quota: pauses of up to 100 ms delay each ack"),
        ("Python", True, is_built, "a debug build" if facts.python_is_debug else built,
         "a Python configured with --enable-optimizations --with-lto (Debian's, uv's) is 10 to 30 % faster"),
        ("Java", True, (facts.java or 0) >= 17, f"version {facts.java}" if facts.java else "none",
         "for Spark: 17 or newer, on the PATH or in JAVA_HOME (Debian: openjdk-17-jre-headless)"),
        ("extras", True, not facts.absent, f"not installed: {extras}" if extras else ", ".join(_EXTRAS),
         f"pip install 'squall[{extras.replace(' ', '')}]'"),
        ("ptrace", True, not facts.ptrace_scope, f"kernel.yama.ptrace_scope is {facts.ptrace_scope or 0}",
         "for squall profile: sysctl kernel.yama.ptrace_scope=0, or root"),
        ("arena", True, facts.dumpable, "can be read" if facts.dumpable else NOT_DUMPABLE,
         "a Python without capabilities (setcap -r): long values go through sockets, which takes longer"),
    ]
    return [
        Diagnosis(what, OK if good else COULD_BE_BETTER if enough else MISSING, found, "" if good else mend)
        for what, enough, good, found, mend in rows
    ]


def _limit(limit: int) -> str:
    return "no limit" if limit == sys.maxsize else f"at most {limit:,}"


def read_facts(directory: Path) -> Facts:
    """Read the facts. `directory`: of the runs, which need not be there yet."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    files, processes, file_bytes = (
        sys.maxsize if (limit := resource.getrlimit(which)[at]) == resource.RLIM_INFINITY else limit
        for which, at in ((resource.RLIMIT_NOFILE, 1), (resource.RLIMIT_NPROC, 0), (resource.RLIMIT_FSIZE, 0))
    )
    scope = _text(Path("/proc/sys/kernel/yama/ptrace_scope"))
    v1 = f"{_text(_CGROUPS / 'cpu/cpu.cfs_quota_us') or 'max'} {_text(_CGROUPS / 'cpu/cpu.cfs_period_us') or 100_000}"
    quota, period = (_text(_CGROUPS / "cpu.max") or v1).split()
    stat = _text(_CGROUPS / "cpu.stat") or _text(_CGROUPS / "cpu/cpu.stat")
    throttled = re.search(r"nr_throttled (\d+)", stat)
    return Facts(
        java=_java(), open_files=files, processes=processes, file_bytes=file_bytes,
        disk_bytes=shutil.disk_usage(there).free, directory=str(there),
        python_configured=sysconfig.get_config_var("CONFIG_ARGS") or "",
        python_is_debug=hasattr(sys, "gettotalrefcount"), cores=len(os.sched_getaffinity(0)),
        quota_cores=int(quota) / int(period) if quota.isdecimal() else None,
        throttled=int(throttled[1]) if throttled else 0,
        absent=tuple(name for name, needs in _EXTRAS.items() if not all(map(importlib.util.find_spec, needs))),
        ptrace_scope=int(scope) if scope and os.geteuid() else None, dumpable=may_be_read(),
    )


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip() if path.exists() else ""


def _java() -> int | None:
    home = os.environ.get("JAVA_HOME")
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # it is not there, or does not answer: no Java
        line = [f"{home}/bin/java" if home else "java", "-version"]
        said = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False).stderr
        if found := re.search(r'version "(?:1\.)?(\d+)', said):
            return int(found[1])
    return None


@click.command("doctor")
@directory_option
@json_option
def doctor_command(directory: str | None, as_json: bool) -> None:
    """Tell what is missing or misset on this machine, and how to mend it. Exit code 1: Squall cannot run like this."""
    found = findings(read_facts(cluster_path(directory)))
    rows = [[one.what, Cell(one.state, _STYLES[one.state]), one.found, one.mend] for one in found]
    show(as_json, [one._asdict() for one in found], [Grid(["what", "state", "found", "mend"], rows)])
    raise click.exceptions.Exit(int(any(one.state == MISSING for one in found)))


@click.command("config")
@click.argument("target", metavar="[FILE[:NAME]]", required=False, is_eager=True, callback=use_settings_beside)
@settings_option
@click.option("--show-origin", is_flag=True, help="Name the place that gives each value.")
@json_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
def config_command(
    target: str | None, settings: tuple[str, ...], show_origin: bool, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """Show the resolved settings; with FILE, those of the topology in it.

    Options win over SQUALL_* variables, these over the Config of the code, this over squall.toml or [tool.squall] in
    pyproject.toml, and that over the defaults.
    """
    layers = layers_of(settings)
    out = reserve_stdout() if as_json else None
    code = None if target is None else load_topology(target, list(arguments)).topology.config
    config = layers.config(code)
    document: dict[str, Any] = {
        **{name: {"value": value, "storm_key": key, "help": text} for name, key, value, text in config},
        **{key: {"value": value, "help": "handed to the components"} for key, value in config.extra.items()},
    }
    if show_origin:
        for name, row in document.items():
            row["origin"] = layers.origin(name, code)
    if as_json:
        say_json(document, out=out)
        return
    for name, row in document.items():
        if show_origin:
            say(f"{name} = {row['value']!r}    # {row['origin']}")
        else:
            meaning = f"{row['storm_key']}: {row['help']}" if "storm_key" in row else row["help"]
            say(f"{name} = {row['value']!r}", f"    {meaning}")
