"""Checks names of nodes."""

from __future__ import annotations

import re

from squall.engine.errors import UsageError

_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def check_node_name(name: str) -> None:
    """UsageError unless a node may have this name, which becomes part of file names."""
    if not _NODE_NAME.fullmatch(name):
        raise UsageError(f"node name {name!r:.80} is not allowed: 1 to 64 letters, digits, '_', '-', '.'")
