"""Faults in components of users leave a cluster whole: their tests share one."""

from __future__ import annotations

from tests.process.conftest import session_cluster, shared_cluster

__all__ = ["session_cluster", "shared_cluster"]
