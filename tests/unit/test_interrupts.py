"""Signals that ask a command to end are counted, and the handlers from before come back."""

from __future__ import annotations

import os
import signal

import pytest

from squall.cli.given.interrupts import Interrupts


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_each_is_counted(signum: signal.Signals, code: int) -> None:
    # Tests that run under nohup have SIGHUP ignored.
    at_first = signal.signal(signum, signal.default_int_handler)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signum)
            assert (interrupts.count, interrupts.exit_code) == (1, code)
        assert signal.getsignal(signum) is signal.default_int_handler
    finally:
        signal.signal(signum, at_first)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.count == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([], 4),
        ([signal.SIGTERM], 4),
        ([signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGTERM], 143),
    ],
)
def test_one_sigterm_is_an_order_to_drain_and_no_failure(signals: list[signal.Signals], code: int) -> None:
    with Interrupts() as interrupts:
        for signum in signals:
            os.kill(os.getpid(), signum)
        assert interrupts.code_after_drain(4) == code
