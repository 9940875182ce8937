"""What every test gets without asking: the marker of its tier, a check that it left nothing behind, a seed.

Guarantees: a test that leaves a process, thread or descriptor fails, naming it; those that start processes are checked
for orphans and run directories as well; the same holds for the run as a whole. Run directories are made
in a directory of this run's own, so that clusters of other people on the machine are never looked at.

Relies on: `tests.leaks`. A test's seed is of its name, so that a commit passes or fails wherever it is tested;
`SQUALL_TEST_SEED` gives another, or `random` a fresh one to each test (`make chaos` does).
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from squall.ipc.rundir import RunDir
from squall.testing import plugin
from tests import leaks
from tests.tiers import TIERS, Durations, file_order, tier_of

WITHOUT_PROCESSES = ("unit", "sim")
SPARK_CLASSES = Path(__file__).parents[1] / "build" / "spark" / "classes.jsa"
SEED_VARIABLE, RANDOM = "SQUALL_TEST_SEED", "random"

MARKER = pytest.StashKey[leaks.RunMarker]()
RUNTIME_DIR = pytest.StashKey[Path]()
OUTER_RUNTIME_DIR = pytest.StashKey[str | None]()
FAILED = pytest.StashKey[bool]()

# The machine that runs the tests is shared: how long an example takes says nothing about the code.
hypothesis.settings.register_profile(
    "squall", deadline=None, print_blob=True, derandomize=os.environ.get(SEED_VARIABLE) != RANDOM
)
hypothesis.settings.load_profile("squall")


def pytest_configure(config: pytest.Config) -> None:
    given = os.environ.get(SEED_VARIABLE, RANDOM)
    if given != RANDOM and not given.isdecimal():
        raise pytest.UsageError(f"{SEED_VARIABLE} is {given!r}; it takes a whole number or {RANDOM!r}")
    config.stash[MARKER] = leaks.RunMarker()
    # Short, because socket paths end at 107 bytes and pytest's own temporary directories are long.
    config.stash[RUNTIME_DIR] = Path(tempfile.mkdtemp(prefix="sq-"))
    config.stash[OUTER_RUNTIME_DIR] = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(config.stash[RUNTIME_DIR])
    if not config.pluginmanager.is_registered(plugin):
        # Where Squall is installed, its entry point did it already.
        config.pluginmanager.register(plugin, "squall")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())
    if SPARK_CLASSES.exists():
        # Else each JVM reads and checks 15,000 classes anew. Without a word, if the archive does not fit.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f'"-XX:SharedArchiveFile={SPARK_CLASSES}" -Xlog:disable')
    # Dead letters of runs without a directory of their own are kept there.
    os.environ["XDG_STATE_HOME"] = str(config.stash[RUNTIME_DIR] / "state")


def pytest_unconfigure(config: pytest.Config) -> None:
    if MARKER not in config.stash:
        return  # it was refused above
    config.stash[MARKER].close()
    shutil.rmtree(config.stash[RUNTIME_DIR])
    outer = config.stash[OUTER_RUNTIME_DIR]
    if outer is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = outer


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: file_order(item.path))
    for item in items:
        tier = tier_of(item.nodeid)
        if tier not in TIERS:
            raise pytest.UsageError(f"{item.path}: tests are in the folder of a tier: {', '.join(TIERS)}")
        item.add_marker(tier)
        # Side by side, a file's tests stay together, with what they share; so do all that share the Spark session.
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark" if tier == "spark" else item.path.name))


def pytest_collection_finish() -> None:
    # Thousands of tests and all that they import stay to the end: to look through them takes 0.7 s in each collection,
    # of which a test with a reference cycle to a descriptor costs one.
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each thing that is missing, however many files would use it."""
    skipped = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in skipped.most_common():
        terminalreporter.line(f"{count:5} skipped: {reason.removeprefix('Skipped: ')}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session", autouse=True)
def run_leaves_nothing(pytestconfig: pytest.Config) -> Iterator[None]:
    """The first fixture of all to begin and the last to end: what fixtures shared by several tests left behind."""
    before = leaks.Snapshot(pytestconfig.stash[MARKER], run_parent(pytestconfig))
    yield
    report(leaks.find_leaks(before, lasting_only=True), "the test run")


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    config = request.config
    if tier_of(request.node.nodeid) in WITHOUT_PROCESSES:
        before = leaks.Snapshot()
    else:
        before = leaks.Snapshot(config.stash[MARKER], run_parent(config))
    yield
    # The traceback of a failed test holds its local variables, and with them sockets and files: no leak of the product.
    report(leaks.find_leaks(before, lasting_only=request.node.stash.get(FAILED, False)), "this test")


def report(found: leaks.Leaks, who: str) -> None:
    if found:
        found.end_processes()
        pytest.fail(f"{who} left behind:\n{found}", pytrace=False)


def run_parent(config: pytest.Config) -> Path:
    """Where run directories go by default: `squall` in the user's runtime directory."""
    return config.stash[RUNTIME_DIR] / "squall"


@pytest.fixture
def run_dir() -> Iterator[RunDir]:
    """Anonymous, in the directory of this test run."""
    made = RunDir.create()
    yield made
    made.remove()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's number, shown when it fails; SQUALL_TEST_SEED=<number> gives another, `random` a fresh one."""
    given = os.environ.get(SEED_VARIABLE)
    if given is None:
        value = zlib.crc32(request.node.nodeid.encode())
    else:
        value = random.SystemRandom().getrandbits(32) if given == RANDOM else int(given)
    print(f"seed {value} ({SEED_VARIABLE}={value} repeats it)")
    return value
