"""Wrong use of `squall chaos`: a line that says what is allowed, before anything is started."""

from __future__ import annotations

import pytest

from squall.cli.commands import main

HERE = "tests/process/chaos_topologies.py"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed", "x"), "'--seed': 'x' is not a valid integer range"),
        (("--seed", "1", "--seeds", "0"), "'--seeds': 0 is not in the range 1<=x<=1000000"),
        (("--seed", "1", "--mix", "meteor"), "mix 'meteor' is unknown; allowed: all, process"),
        (("--seed", "1", "--for", "3 parsecs"), "duration '3 parsecs'"),
        (("--seed", "1", "--sink", "numbers"), "sink 'numbers' is no bolt of this topology; its bolts: halves, end"),
        (("--seed", "1", "--set", "ackers=0"), "setting ackers is 0: nothing is tracked"),
        ((), "missing option '--seed' (see `squall chaos --help`)"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chaos", f"{HERE}:numbers", *arguments])
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
