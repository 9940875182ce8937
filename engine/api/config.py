"""Every setting of a topology: one options object, all defaults in one place, validated once.

Guarantees: a `Config` that exists is valid; an unknown or out-of-range setting is refused by name with what is allowed.
Settings can be given by Squall's name (`workers=2`) or by Storm's key (`**{"topology.workers": 2}`), and are printed
under both.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from squall.engine.errors import ConfigError

Check = Callable[[Any], Any]
"""Returns the value as stored; raises ValueError naming the allowed values."""


@dataclass(frozen=True)
class Setting:
    """One setting: its key in Storm, its check and its help text."""

    storm_key: str
    check: Check
    help: str


def _number(kind: type, low: float, high: float | None = None, none: str = "", word: Any = None) -> Check:
    """A check for numbers. `none`: what None means, if it is allowed; `word`: another allowed value."""
    allowed = f"{'an integer' if kind is int else 'a number of seconds'} from {low}"
    allowed += " up" if high is None else f" to {high}"
    allowed += f", or None ({none})" if none else ""
    allowed += "" if word is None else f", or {word!r}"

    def check(value: Any) -> Any:
        if (value is None and none) or (word is not None and type(value) is type(word) and value == word):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(allowed)
        # Also refuses infinity and NaN as integers: their remainder is NaN, which is true.
        if not value >= low or (high is not None and value > high) or (kind is int and value % 1):
            raise ValueError(allowed)
        return kind(value)

    return check


_integer = partial(_number, int)
_seconds = partial(_number, float, high=86400)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def _choice(*allowed: str, none: str = "") -> Check:
    def check(value: Any) -> str | None:
        if none and value is None:
            return None
        if not isinstance(value, str) or value.lower() not in allowed:
            raise ValueError(" or ".join([*map(repr, allowed), *([f"None ({none})"] if none else [])]))
        return value.lower()

    return check


def _consumers(value: Any) -> tuple[dict[str, Any], ...]:
    """Storm's list of maps, or names alone."""
    given: list[Any] = list(value) if isinstance(value, list | tuple) else [None]
    rows = [{"class": each} if isinstance(each, str) else each for each in given]
    for row in rows:
        if not isinstance(row, dict) or "." not in str(row.get("class")):
            raise ValueError("a list of 'package.module.Class' or {'class': ..., 'argument': ...}")
    return tuple({"class": row["class"], "argument": row.get("argument")} for row in rows)


AS_MESSAGE_TIMEOUT = "message_timeout_secs"
ADAPTIVE = "adaptive"


def _setting(default: Any, storm_key: str, check: Check, help_text: str) -> Any:
    return field(default=default, metadata={"setting": Setting(storm_key, check, help_text)})


@dataclass(frozen=True, init=False)
class Config:
    """The settings of one topology, as keyword arguments: `Config(workers=2, message_timeout_secs=5)`, or by Storm's
    keys, `Config(**{"topology.workers": 2})`. Raises ConfigError, which lists every mistake.

    Other keys with a dot are the topology's own settings: they are kept in `extra`, and handed to components in `conf`.
    """

    workers: int = _setting(1, "topology.workers", _integer(1, 1024), "worker processes of the topology")
    ackers: int | None = _setting(
        None,
        "topology.acker.executors",
        _integer(0, 1024, none="as many as workers"),
        "acker executors; 0 = no tracking, a tuple is acked as it is emitted",
    )
    message_timeout_secs: float = _setting(
        30.0,
        "topology.message.timeout.secs",
        _seconds(0.05),
        "time after its emit at which an unfinished tuple tree fails (a safety net: deaths are noticed at once)",
    )
    worker_timeout_secs: float | None = _setting(
        30.0,
        "topology.worker.timeout.secs",
        _seconds(1, none="never"),
        "time without a turn of its loop after which a living worker (stopped, or hung in user code) is replaced",
    )
    execute_timeout_secs: float | str | None = _setting(
        AS_MESSAGE_TIMEOUT,
        "squall.execute.timeout.secs",
        _seconds(0.05, none="never", word=AS_MESSAGE_TIMEOUT),
        "longest time of one tuple in `execute` of a blocking bolt, counted anew from each `reset_timeout`; then its "
        "worker is replaced and the tuple fails as 'hung'; by default message_timeout_secs, when its tree has failed "
        "anyway; may be set per component",
    )
    max_spout_pending: int | str | None = _setting(
        ADAPTIVE,
        "topology.max.spout.pending",
        _integer(1, none="no limit", word=ADAPTIVE),
        "trees a spout task may have open; bounds memory and the time a tuple waits in queues; by default as many as "
        "full speed takes, which is tuned while the topology runs",
    )
    even_shuffle: bool = _setting(
        False,
        "topology.disable.loadaware.messaging",
        _flag,
        "shuffles give each task the same number of tuples, even one that would keep them waiting",
    )
    tick_tuple_freq_secs: float | None = _setting(
        None,
        "topology.tick.tuple.freq.secs",
        _seconds(0.001, none="no ticks"),
        "time between two tick tuples for each bolt task; may be set per component",
    )
    batch_rows: int | None = _setting(
        None,
        "squall.batch.rows",
        _integer(1, 65536, none="as many as make the fixed time of a call small"),
        "rows that each call of a batch bolt shall have, never more; may be set per component",
    )
    batch_wait_ms: int = _setting(
        0,
        "squall.batch.wait.ms",
        _integer(0, 3_600_000),
        "longest time that a call waits for batch_rows, up to half of message_timeout_secs; may be set per component",
    )
    max_attempts: int | None = _setting(
        None,
        "squall.max.attempts",
        _integer(1, none="replay for ever"),
        "own failures of a message after which it becomes a dead letter",
    )
    max_crashes: int | None = _setting(
        5,
        "squall.max.crashes",
        _integer(1, none="replay for ever"),
        "workers that a message may end, by an exception or without a word, until it becomes a dead letter",
    )
    on_error: str = _setting(
        "crash",
        "squall.on.error",
        _choice("crash", "fail"),
        "on an exception in execute: 'crash' fails its tuples and restarts the worker, 'fail' only fails the tuple",
    )
    fail_fast: bool = _setting(
        True, "squall.fail.fast", _flag,
        "the run stops, with nothing buried, when messages fail the same way from the first on, or lately nearly all",
    )
    fail_on_late: bool = _setting(
        False, "squall.fail.on.late", _flag, "the run ends with exit code 1 if windows dropped a tuple that was late"
    )
    debug: bool = _setting(
        False, "topology.debug", _flag, "pickle every emitted value, to check that it could be sent to another worker"
    )
    log_level: str | None = _setting(
        None,
        "squall.log.level",
        _choice("debug", "info", "warning", "error", "critical", none="the program's own"),
        "level of the root logger in workers and with --local, whatever the program has set",
    )
    log_format: str = _setting(
        "text", "squall.log.format", _choice("text", "json"), "'json' writes each log record as one JSON object"
    )
    log_rotate_bytes: int = _setting(
        64 << 20,
        "squall.log.rotate.bytes",
        _integer(4096),
        "length at which a worker's log is turned over: it becomes LOG.1, and the one that was LOG.3 is removed",
    )
    drop_windows: bool = _setting(
        False, "squall.drop.windows", _flag, "drop open windows of state that were declared otherwise than they are now"
    )
    warm_spare: bool = _setting(
        True,
        "squall.warm.spare",
        _flag,
        "each node keeps a process that has loaded the topology's code, and becomes the worker when one dies",
    )
    batch_tuples: int = _setting(
        64,
        "topology.producer.batch.size",
        _integer(1, 65536),
        "tuples and acks that a busy worker collects for another one before it sends them",
    )
    link_window_bytes: int = _setting(
        8 * 1024 * 1024,
        "squall.link.window.bytes",
        _integer(64 * 1024),
        "bytes that may be under way from one worker to another: sent, and not processed yet",
    )
    max_frame_bytes: int = _setting(
        1 << 30,
        "squall.max.frame.bytes",
        _integer(16 << 20),
        "longest frame between two workers, without what travels in the arena; a single bigger value is an error",
    )
    arena_bytes: int = _setting(
        64 * 1024 * 1024,
        "squall.arena.bytes",
        _integer(64 * 1024, 4 << 30, word=0),
        "shared memory for payloads of 64 KiB and more; 0 = send them through the socket",
    )
    metrics_consumers: Sequence[Mapping[str, Any]] = _setting(
        (),
        "topology.metrics.consumer.register",
        _consumers,
        "classes that are handed what every task did: names, or maps with class and argument (docs/metrics.md)",
    )
    metrics_interval_secs: float = _setting(
        60.0, "topology.builtin.metrics.bucket.size.secs", _seconds(0.1), "how often metrics_consumers are called"
    )
    seed: int | None = _setting(
        None,
        "squall.seed",
        _integer(0, none="a different order each run"),
        "seed of shuffle and none groupings (never of tuple ids)",
    )
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys with a dot that are not Storm's: the topology's own, handed to its components."""
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Names of the settings that were passed, even if as the default."""

    def __init__(self, **settings: Any) -> None:
        mistakes, values = _parse(settings)
        if mistakes:
            raise ConfigError("; ".join(mistakes))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def acker_count(self) -> int:
        """Number of acker executors in effect."""
        return self.workers if self.ackers is None else self.ackers

    def execute_timeout_of(self, component: Mapping[str, Any]) -> float | None:
        """Return the time limit of `execute`, in seconds, for a blocking bolt with these settings of its own; None
        means no limit."""
        limit = component.get("execute_timeout_secs", self.execute_timeout_secs)
        return self.message_timeout_secs if limit == AS_MESSAGE_TIMEOUT else limit

    def replace(self, **changes: Any) -> Config:
        """Return a copy with some settings changed."""
        changed = {canonical_name(key) or key for key in changes}
        return Config(**{key: value for key, value in self.explicit().items() if key not in changed}, **changes)

    def explicit(self) -> dict[str, Any]:
        """The settings that were passed, by Squall's name, and the extra keys."""
        return {**{name: getattr(self, name) for name in SETTINGS if name in self.given}, **self.extra}

    def settings(self) -> dict[str, Any]:
        """Every setting by Squall's name."""
        return {name: getattr(self, name) for name in SETTINGS}

    def to_dict(self) -> dict[str, Any]:
        """All settings and extra keys, as plain values that `Config(**...)` accepts."""
        return {**self.settings(), **self.extra}

    def for_components(self) -> dict[str, Any]:
        """The conf that `open` and `prepare` receive: every setting under both names, and the extra keys."""
        both = {SETTINGS[name].storm_key: value for name, value in self.settings().items()}
        return {**both, **self.to_dict()}

    def __iter__(self) -> Iterator[tuple[str, str, Any, str]]:
        """(name, Storm's key, value, help) of each setting, in order."""
        for name, setting in SETTINGS.items():
            yield name, setting.storm_key, getattr(self, name), setting.help


SETTINGS: dict[str, Setting] = {
    f.name: f.metadata["setting"] for f in dataclasses.fields(Config) if "setting" in f.metadata
}
_BY_STORM_KEY = {setting.storm_key: name for name, setting in SETTINGS.items()}
COMPONENT_SETTINGS = (
    "tick_tuple_freq_secs", "execute_timeout_secs", "max_spout_pending", "batch_rows", "batch_wait_ms", "debug",
)
"""Settings that a single component may override."""


def canonical_name(key: str) -> str | None:
    """Squall's name of a setting given by either name; None if there is no such setting."""
    if key in SETTINGS:
        return key
    return _BY_STORM_KEY.get(key)


def check_setting(key: str, value: Any) -> tuple[str, Any]:
    """(name, value as stored) of one setting; ConfigError if it is unknown or out of range."""
    name = canonical_name(key)
    if name is None:
        raise ConfigError(_unknown(key))
    try:
        return name, SETTINGS[name].check(value)
    except ValueError as allowed:
        raise ConfigError(f"setting {key} is {value!r}; allowed: {allowed}") from None


def check_settings(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """(mistakes, values as stored by Squall's name). Both names of a setting may be given, with one value."""
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in settings.items():
        try:
            name, kept = check_setting(key, value)
        except ConfigError as mistake:
            mistakes.append(str(mistake))
            continue
        if values.setdefault(name, kept) != kept:
            mistakes.append(
                f"setting {name} is given twice: {keys[name]} = {settings[keys[name]]!r} and {key} = {value!r}; "
                "allowed: one value"
            )
        keys[name] = key
    return mistakes, values


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, [*SETTINGS, *_BY_STORM_KEY], n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; settings are {', '.join(SETTINGS)}"
    return f"unknown setting {key}{hint}"


def _parse(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    # A dotted key that is not Storm's belongs to the user's own components; a typo in Storm's is caught.
    extra = {
        key: value for key, value in settings.items()
        if canonical_name(key) is None and "." in key and not key.startswith(("topology.", "squall."))
    }
    mistakes, given = check_settings({key: value for key, value in settings.items() if key not in extra})
    defaults = {f.name: f.default for f in dataclasses.fields(Config) if f.default is not dataclasses.MISSING}
    return mistakes, {**defaults, **given, "extra": extra, "given": frozenset(given)}
