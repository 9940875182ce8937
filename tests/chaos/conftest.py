"""Faults in components of users leave a cluster whole: their tests share one."""

from __future__ import annotations

from tests.process.conftest import cluster, session_cluster, shared_cluster

__all__ = ["cluster", "session_cluster", "shared_cluster"]
