"""The set-up of `logging` in the submitting program holds in workers; settings win over it; no record is lost."""

from __future__ import annotations

import io
import json
import logging
import pickle
import sys

import pytest

from squall import Config, ConfigError
from squall.scheduler.common.environment import apply_logging_settings, logging_set_up, reset_logging

NAME = "shop.of.this.test"


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of this test's own: pytest has handlers at the root."""
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging.Logger, "root", root)
    monkeypatch.setattr(logging.Logger, "manager", logging.Manager(root))
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)


def in_a_worker(monkeypatch: pytest.MonkeyPatch, config: Config | None = None) -> io.StringIO:
    """Set up logging as a worker does that gets what was set up here; returns its stderr."""
    data = pickle.dumps(logging_set_up())
    monkeypatch.setattr(logging.Logger, "manager", logging.Manager(logging.root))
    logging.basicConfig(level=logging.INFO, format="a daemon's: %(message)s")
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    reset_logging()
    pickle.loads(data).apply()
    apply_logging_settings(config or Config(), worker="node-1:6700")
    return stderr


def test_a_programs_set_up_holds_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.basicConfig(force=True, level=logging.DEBUG, format="own %(levelname)s: %(message)s")
    logging.getLogger(NAME).setLevel(logging.ERROR)
    stderr = in_a_worker(monkeypatch)
    logging.getLogger("other").debug("told")
    logging.getLogger(NAME).info("not told")
    logging.getLogger(NAME).error("wrong")
    assert stderr.getvalue() == "own DEBUG: told\nown ERROR: wrong\n"


def test_without_a_set_up_no_record_of_its_level_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = in_a_worker(monkeypatch)
    logging.getLogger(NAME).info("not told")
    logging.getLogger(NAME).warning("told")
    assert stderr.getvalue().endswith(f" WARNING {NAME}: told\n")
    assert stderr.getvalue().count("\n") == 1


def test_basic_config_in_a_component_has_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = in_a_worker(monkeypatch)
    logging.basicConfig(level=logging.INFO, format="own: %(message)s")
    logging.getLogger(NAME).info("told")
    assert stderr.getvalue() == "own: told\n"


def test_records_for_a_handler_that_stays_behind_go_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.root.addHandler(logging.StreamHandler(io.StringIO()))
    logging.root.setLevel(logging.INFO)
    stderr = in_a_worker(monkeypatch)
    logging.getLogger(NAME).info("told")
    assert stderr.getvalue().endswith(f" INFO {NAME}: told\n")


def test_settings_win_over_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    logging.basicConfig(force=True, level=logging.ERROR, format="%(message)s")
    stderr = in_a_worker(monkeypatch, Config(log_level="INFO", log_format="json"))
    logging.getLogger(NAME).info("told %s", "twice", extra={"order": 7, "odd": {1, 2}})
    try:
        raise ValueError("no\nluck")
    except ValueError:
        logging.getLogger(NAME).exception("failed")
    first, second = (json.loads(line) for line in stderr.getvalue().splitlines())
    at = first.pop("time")
    assert first == {
        "level": "INFO", "logger": NAME, "message": "told twice", "worker": "node-1:6700", "order": 7, "odd": "{1, 2}",
    }
    assert at[10] == "T"
    assert at[-1] == "Z"
    assert second["exception"].endswith("ValueError: no\nluck")


@pytest.mark.parametrize(("name", "allowed"), [("log_level", "'debug' or 'info'"), ("log_format", "'text' or 'json'")])
def test_levels_and_formats_are_checked(name: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"setting {name} is 'loud'; allowed: {allowed}"):
        Config(**{name: "loud"})
