"""Tasks that are tampered with: what is called before their code, and that they are as before when they are let be."""

from __future__ import annotations

import pytest

from squall.engine.api.tuple import Tuple
from squall.engine.core.watching import tamper
from tests.unit.lab import Lab, forwards, forwards_plain
from tests.unit.rig import Does, DoesBasic

R1, R2 = 1 << 16, 2 << 16
E1, E2 = 0x1111, 0x2222


@pytest.fixture(params=["basic", "plain"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(DoesBasic(forwards) if request.param == "basic" else Does(forwards_plain))


def test_each_tuple_passes_by_before_it_is_executed(lab: Lab) -> None:
    seen = []

    def before(tup: Tuple | None) -> None:
        assert tup is not None
        assert len(lab.user("bolt-2").kept) <= len(seen)
        seen.append(tup[0])

    assert tamper(lab.core, lab.at, before)
    lab.tree(R1, E1)
    lab.receive("ab", (R1, E1, 2))
    assert seen == ["a", "b"]
    assert [tup[0] for tup in lab.user("bolt-2").kept] == ["a", "b"]


def test_let_be_it_is_as_before(lab: Lab) -> None:
    task = lab.core.bolt_tasks[lab.at]
    genuine = task.execute
    tamper(lab.core, lab.at, lambda tup: None)
    tamper(lab.core, lab.at, lambda tup: None)
    assert task.execute is not genuine
    tamper(lab.core, lab.at, None)
    assert task.execute is genuine
    lab.tree(R2, E2)
    lab.receive("a", (R2, E2, 1))
    lab.finish()
    assert lab.spout.acked == [R2]


def test_a_spout_is_asked_after_it(lab: Lab) -> None:
    asked = []
    lab.spout = lab.user("spout")
    assert tamper(lab.core, lab.source, asked.append)
    lab.core.set_active(True)
    lab.core.run_spouts()
    assert asked
    assert set(asked) == {None}
    tamper(lab.core, lab.source, None)
    asked.clear()
    lab.core.run_spouts()
    assert asked == []
