"""Signals that ask a command to end are counted, and the handlers from before come back."""

from __future__ import annotations

import os
import signal

import pytest

from squall.cli.interrupts import Interrupts


@pytest.mark.parametrize(
    ("signals", "code", "after_drain"),
    [
        ([signal.SIGINT], 130, 130), ([signal.SIGHUP], 129, 129),
        # One SIGTERM is an order to drain, and no failure.
        ([signal.SIGTERM], 143, 4), ([signal.SIGINT, signal.SIGTERM], 143, 143),
    ],
)
def test_each_is_counted(signals: list[signal.Signals], code: int, after_drain: int) -> None:
    # Tests that run under nohup have SIGHUP ignored.
    before = {signum: signal.signal(signum, signal.default_int_handler) for signum in signals}
    try:
        with Interrupts() as interrupts:
            for signum in signals:
                os.kill(os.getpid(), signum)
            assert (interrupts.count, interrupts.exit_code) == (len(signals), code)
            assert interrupts.code_after_drain(4) == after_drain
        assert all(signal.getsignal(signum) is signal.default_int_handler for signum in signals)
    finally:
        for signum, at_first in before.items():
            signal.signal(signum, at_first)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)
