"""Settings: either name, checked once, every mistake at once."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.config import SETTINGS, Config, canonical_name
from squall.engine.errors import ConfigError, UsageError


def test_storms_keys_mean_the_same() -> None:
    by_storm = Config(**{"topology.workers": 3, "topology.message.timeout.secs": 5})
    assert by_storm == Config(workers=3, message_timeout_secs=5)
    for name, setting in SETTINGS.items():
        assert canonical_name(setting.storm_key) == canonical_name(name) == name
    assert canonical_name("topology.worker") is None


@pytest.mark.parametrize(
    ("settings", "ackers"), [({"workers": 3}, 3), ({"workers": 3, "ackers": 0}, 0), ({"ackers": 2}, 2)]
)
def test_there_are_as_many_ackers_as_workers_unless_told(settings: dict[str, Any], ackers: int) -> None:
    assert Config(**settings).acker_count == ackers


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("workers", 0, "an integer from 1 to 1024"),
        ("workers", True, "an integer"),
        ("workers", float("nan"), "an integer from 1 to 1024"),
        ("ackers", -1, "None"),
        ("message_timeout_secs", 0, "a number of seconds from 0.05"),
        ("message_timeout_secs", float("inf"), "a number of seconds"),
        ("execute_timeout_secs", "forever", "'message_timeout_secs'"),
        ("on_error", "ignore", "'crash' or 'fail'"),
        ("debug", 1, "True or False"),
    ],
)
def test_what_is_out_of_range_is_refused_with_what_is_allowed(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(UsageError) as refused:
        Config(**{key: value}, nonsense=1)
    assert [part for part in (key, repr(value), allowed, "nonsense") if part not in str(refused.value)] == []


@pytest.mark.parametrize(("settings", "component", "limit"), [
    ({}, {}, 30), ({"message_timeout_secs": 5}, {}, 5), ({"execute_timeout_secs": None}, {}, None),
    ({"execute_timeout_secs": 7}, {}, 7), ({"execute_timeout_secs": 7}, {"execute_timeout_secs": None}, None),
    ({"execute_timeout_secs": 7}, {"execute_timeout_secs": "message_timeout_secs"}, 30),
])
def test_a_tuple_may_be_executed_as_long_as_its_tree_may_take_unless_told(
    settings: dict[str, Any], component: dict[str, Any], limit: float | None
) -> None:
    assert Config(**settings).execute_timeout_of(component) == limit


def test_an_unknown_setting_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting max_spout_pendin; did you mean max_spout_pending\?"):
        Config(max_spout_pendin=3)
    with pytest.raises(ConfigError, match=r"did you mean topology\.workers"):
        Config(**{"topology.wokers": 3})
    with pytest.raises(ConfigError, match="settings are workers, ackers"):
        Config(zzz=3)


def test_both_names_of_a_setting_are_to_agree() -> None:
    said = r"^setting workers is given twice: workers = 3 and topology\.workers = 2; allowed: one value$"
    with pytest.raises(ConfigError, match=said):
        Config(workers=3, **{"topology.workers": 2})
    # As components receive them.
    assert Config(**Config(workers=3).for_components()) == Config(workers=3)
    assert Config(workers=3).replace(**{"topology.workers": 2}).workers == 2


def test_dotted_keys_that_are_not_storms_are_the_users_own() -> None:
    config = Config(**{"my.key": [1, 2], "workers": 2})
    assert config.extra == {"my.key": [1, 2]}
    conf = config.for_components()
    assert (conf["my.key"], conf["workers"], conf["topology.workers"]) == ([1, 2], 2, 2)
    assert Config(**config.to_dict()) == config
    assert config.explicit() == {"my.key": [1, 2], "workers": 2}


def test_replace_changes_some_settings_and_keeps_the_rest() -> None:
    config = Config(**{"workers": 2, "my.key": 1, "max_attempts": 3})
    changed = config.replace(workers=4, **{"topology.max.spout.pending": 7})
    assert changed.explicit() == {"workers": 4, "my.key": 1, "max_attempts": 3, "max_spout_pending": 7}
    assert config.workers == 2
    for wrong in ({"workers": 0}, {"workers": 3, "topology.workers": 2}):
        with pytest.raises(ConfigError, match="workers"):
            config.replace(**wrong)
