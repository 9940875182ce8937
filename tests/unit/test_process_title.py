"""Roles read back from command lines."""

from __future__ import annotations

import pytest

from squall.scheduler.common.role import Role, RoleKind, role_in


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["squall: nimbus", "", "", ""], Role(RoleKind.NIMBUS)),
        (["squall: supervisor node-1", ""], Role(RoleKind.SUPERVISOR, "node-1")),
        # psutil splits at blanks what fills its room.
        (["squall:", "forking", "parent", "node-1"], Role(RoleKind.FORKING_PARENT, "node-1")),
        (["squall: worker node-1:6700 two words", ""], Role(RoleKind.WORKER, "node-1:6700", "two words")),
        (["squall: worker node-1:6700 keeper", ""], Role(RoleKind.WORKER, "node-1:6700", "keeper")),
        (["python", "-P", "-m", "squall.scheduler.nimbus.main", "--dir", "/x"], Role(RoleKind.NIMBUS)),
        (
            ["python", "-P", "-m", "squall.scheduler.supervisor.main", "--dir", "/x", "--node", "a", "--ports", "1"],
            Role(RoleKind.SUPERVISOR, "a"),
        ),
        (["squall: nimbuses"], None),
        (["python", "-m", "http.server"], None),
        (["python", "/usr/bin/squall", "supervisor", "--node", "a"], None),
        ([], None),
    ],
)
def test_roles(command: list[str], role: Role | None) -> None:
    assert role_in(command) == role
