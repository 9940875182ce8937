"""Roles read back from command lines."""

from __future__ import annotations

import pytest

from squall.scheduler.common.process_title import Kind, Role, role_in


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["squall: nimbus", "", "", ""], Role(Kind.NIMBUS)),
        (["squall: supervisor node-1", ""], Role(Kind.SUPERVISOR, "node-1")),
        # psutil splits at blanks what fills its room.
        (["squall:", "forking", "parent", "node-1"], Role(Kind.FORKING_PARENT, "node-1")),
        (["squall: worker node-1:6700 two words", ""], Role(Kind.WORKER, "node-1:6700", "two words")),
        (["squall: worker node-1:6700 keeper", ""], Role(Kind.WORKER, "node-1:6700", "keeper")),
        (["python", "-P", "-m", "squall.scheduler.nimbus.main", "--dir", "/x"], Role(Kind.NIMBUS)),
        (
            ["python", "-P", "-m", "squall.scheduler.supervisor.main", "--dir", "/x", "--node", "a", "--ports", "1"],
            Role(Kind.SUPERVISOR, "a"),
        ),
        (["squall: nimbuses"], None),
        (["python", "-m", "http.server"], None),
        (["python", "/usr/bin/squall", "supervisor", "--node", "a"], None),
        ([], None),
    ],
)
def test_roles(command: list[str], role: Role | None) -> None:
    assert role_in(command) == role
