"""Wrong arguments of fixture `squall_chaos`: a line that says what is allowed, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall import UsageError
from squall.testing.fixture_chaos import FixtureChaos
from tests.process.chaos_topologies import numbers


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"faults": ["kill"]}, r"faults \['kill'\]; allowed: a text as for --mix"),
        ({"for_secs": "1s"}, "for_secs '1s'; allowed: a number of seconds above 0"),
        ({"for_secs": float("nan")}, "for_secs nan; allowed"),
        ({"for_secs": -1}, "for_secs -1; allowed"),
        ({"for_secs": 0}, "for_secs 0; allowed"),
        ({"for_secs": True}, "for_secs True; allowed"),
        ({"nodes": 0}, "nodes 0; allowed: an integer from 1 up"),
        ({"seeds": []}, r"seeds \[\]; allowed: one or more integers"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FixtureChaos(tmp_path, None, {}).run(numbers(), **arguments)
