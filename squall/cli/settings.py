"""Settings given on the command line as KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from squall.engine.errors import UsageError

_WORDS = {"none": None, "null": None, "true": True, "false": False}


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """KEY -> value; a value that reads as JSON (a number, true, null, a list) is taken as such, else as text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {setting!r} is not understood; write KEY=VALUE")
        parsed[key] = _value(text)
    return parsed


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_duration_secs(text: str) -> float:
    """Seconds of "30", "30s", "5m" or "2h"; UsageError for anything else."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        secs = float(number) * units[unit]
    except ValueError:
        secs = -1.0
    if not 0 < secs < float("inf"):
        raise UsageError(f"duration {text!r} is not understood; write for example 30s, 5m or 2h")
    return secs
