"""Waiting for a named condition with a deadline; the only way in which tests let time pass."""

from __future__ import annotations

from squall.testing.waiting import wait_for

__all__ = ["wait_for"]
