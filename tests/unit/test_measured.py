"""What is measured of a cluster, apart from any program that reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from squall.engine.api.user_metrics import UserMetrics
from squall.ipc.rundir import RunDir
from squall.ui.access import token_in
from squall.ui.measured import Distribution, families
from tests.unit.test_screen import status_of
from tests.unit.test_ui_history import NOON, sample


def measured(tmp_path: Path, users: UserMetrics, most: int = 20_000) -> dict[str, Any]:
    """What is measured of one topology, asked as much of a `ClusterApi` as metrics ask."""
    look = replace(
        sample(NOON, 100, millis=40), status=replace(status_of("t", 1), workers=[]), metrics=users.readings()
    )
    api = Mock(run_dir=RunDir(tmp_path))
    api.cluster.return_value = Mock(free_slots=[], nodes={}, away="", refused_frames=0)
    api.sampler.names.return_value, api.sampler.latest.return_value = ["t"], look
    return {family.name: family for family in families(api, most)}


def test_latencies_are_in_the_bucket_that_holds_them(tmp_path: Path) -> None:
    found = measured(tmp_path, UserMetrics())["squall_complete_latency_seconds"].series["t", "lines"]
    assert isinstance(found, Distribution)
    by_bound = dict(zip(found.bounds, found.cumulative(), strict=False))
    assert (by_bound[0.025], by_bound[0.05]) == (0, 100)
    assert found.total == pytest.approx(4.0, rel=1 / 16)


def test_series_are_bounded_and_users_are_left_out_first(tmp_path: Path) -> None:
    users = UserMetrics()
    for number in range(1000):
        users.counter("lines", 1, f"word {number}").inc()
    whole = measured(tmp_path, users)
    assert whole["squall_series_left_out"].series[()] == 0
    cut = measured(tmp_path, users, most=100)
    sizes = [sum(family.size for family in all_of.values()) for all_of in (cut, whole)]
    assert sizes == [101, 101 + cut["squall_series_left_out"].series[()]]
    assert cut["squall_emitted_tuples_total"].series


def test_names_that_become_one_stay_apart_by_their_label(tmp_path: Path) -> None:
    users = UserMetrics()
    users.counter("lines", 1, "a.b").inc(1)
    users.counter("lines", 1, "a-b").inc(2)
    found = measured(tmp_path, users)["squall_user_a_b_total"].series
    assert found == {("t", "lines", "a-b"): 2, ("t", "lines", "a.b"): 1}


@pytest.mark.parametrize(
    ("header", "token"),
    [("bearer abc ", "abc"), ("Basic c3F1YWxsOmFiYw==", "abc"), ("Basic !!", ""), ("Basic /w==", ""), ("Digest a", "")],
)
def test_a_token_comes_as_bearer_or_as_a_password(header: str, token: str) -> None:
    assert token_in(header) == token
