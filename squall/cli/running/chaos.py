"""`squall chaos`: a topology under random faults, and the proof that nothing was lost."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from squall import __version__
from squall.chaos.mix import ALL, GROUPS, kinds_of
from squall.chaos.proof import Proof
from squall.chaos.result import PLACE, Result
from squall.chaos.result_text import expected_text, seed_text, timeline_text, verdict_text
from squall.chaos.tapping import Tapping
from squall.chaos.taps import sinks_of, tap
from squall.chaos.trial import SETTINGS, StoppedTrial, Subject
from squall.cli.interrupts import Interrupts
from squall.cli.loader import load_function, load_result, load_topology
from squall.cli.options import TopologyOptions, json_option, target_options
from squall.cli.output import note, reserve_stdout, say, say_json
from squall.cli.settings import layers_of, settings_option
from squall.engine.report.document import with_schema
from squall.scheduler.cluster.starting import check_workers
from squall.scheduler.common.duration import parse_duration_secs

EXIT_OK, EXIT_FAILURE = 0, 1
_MIX_HELP = f"Which faults, joined by commas: {ALL}, groups ({', '.join(GROUPS)}), or names from them."
_NUMBER, _COUNT = click.IntRange(0, 2**63), click.IntRange(1, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class ChaosOptions(TopologyOptions):
    """The options of `squall chaos`, by the names of the command's parameters."""

    seed: int
    seeds: int
    duration: str
    mix: str
    sinks: tuple[str, ...]
    result: str | None
    key: str | None
    only: tuple[int, ...]
    as_json: bool


@click.command("chaos")
@target_options
@click.option("--seed", type=_NUMBER, required=True, help="Decides what the faults are, what they hit and when.")
@click.option("--seeds", type=_COUNT, default=1, show_default=True, help="Number of seeds to try, from --seed on.")
@click.option("--for", "duration", default="30s", show_default=True, help="Time with faults, for each seed.")
@click.option("--mix", default=ALL, show_default=True, help=_MIX_HELP)
@click.option("--sink", "sinks", multiple=True, metavar="BOLT",
              help="A sink to compare (default: each bolt that no other reads from).")
@click.option("--result", metavar="FILE:FUNCTION",
              help="A function of ARGS that reads the result back, to be the same after each run.")
@click.option("--key", metavar="FILE:FUNCTION",
              help="A function that makes of a sink's tuple, a dict, what must be the same in each run.")
@settings_option
@click.option("--only", type=_NUMBER, multiple=True, metavar="N",
              help="A fault of the seed, by its number: only those named are injected; 0: none.")
@json_option
def chaos_command(**given: Any) -> None:
    """Run the topology in FILE under random faults, and prove that nothing was lost.

    It runs twice without faults first, to learn what its sinks receive; then once for each seed, on a cluster of its
    own. What spouts emit and sinks receive is written down outside the engine, and compared by a program that shares
    nothing with it. Exit code 0: nothing was lost or invented, everything healed, a fault explains every death, nothing
    is left behind; 1: one of these does not hold, or nothing could be compared; 2: wrong use, or a spout by which
    nothing can be proved; 130: interrupted. With --result, an ARG {} is a new directory for each run.
    """
    options = ChaosOptions(**given)
    for_secs, kinds = parse_duration_secs(options.duration), kinds_of(options.mix)
    layers = layers_of(options.settings, SETTINGS)
    # From here on, users' code runs in this process and may print.
    out = reserve_stdout() if options.as_json else None
    result = options.result

    def arguments_in(place: str | Path) -> list[str]:
        return [text if result is None else text.replace(PLACE, str(place)) for text in options.arguments]

    with tempfile.TemporaryDirectory(prefix="squall-chaos-") as place:
        loaded = load_topology(options.target, arguments_in(place), options.app_dir)
    read = None if result is None else load_result(result, options.app_dir, loaded.script)
    key_of = None if options.key is None else load_function(options.key, options.app_dir, loaded.script)
    topology = loaded.topology
    config = layers.config(topology.config)
    check_workers(config.workers, 1)
    subject = Subject(topology, loaded.script, config, options.sinks or sinks_of(topology))
    tap(topology, Tapping("", subject.sinks))
    session = _Session(lambda text: (note if options.as_json else say)(*text.split("\n")), {
        "file": options.target, "seed": options.seed, "seeds": options.seeds, "for": options.duration,
        "mix": options.mix, "sink": subject.sinks,
        "set": [f"{name}={value}" for name, value in config.explicit().items()], "only": options.only,
        "result": result or (), "key": options.key or (), "app-dir": options.app_dir or (),
        "arguments": options.arguments,
    })  # fmt: skip
    directory = Path(tempfile.mkdtemp(prefix="squall-chaos-"))
    try:
        with Interrupts() as interrupts:
            compared = None if read is None else Result(
                lambda place: loaded.build(arguments_in(place)), lambda place: read(arguments_in(place)), directory
            )
            proof = Proof(subject, kinds, for_secs, directory, lambda: interrupts.count > 0, compared, key_of)
            session.run(proof, range(options.seed, options.seed + options.seeds), options.only or None)
    except StoppedTrial:
        raise click.exceptions.Exit(interrupts.exit_code) from None
    finally:
        _tidy(directory, session.document)
    if out is not None:
        say_json(with_schema("chaos", session.document), out=out)
    session.end()
    raise click.exceptions.Exit(EXIT_OK if session.document["good"] else EXIT_FAILURE)


class _Session:
    """Runs the seeds, reports each, and collects the results."""

    def __init__(self, tell: Callable[[str], None], asked: dict[str, Any]) -> None:
        """`asked`: option -> value, or its values."""
        self._tell = tell
        shown = {
            name: value if isinstance(value, str | int) else " ".join(map(str, value)) for name, value in asked.items()
        }
        self.document: dict[str, Any] = {
            "parameters": {**shown, "version": __version__}, "command": _command(**asked), "seeds": [],
        }  # fmt: skip
        tell(self.document["command"])

    def run(self, proof: Proof, seeds: Sequence[int], only: Sequence[int] | None) -> None:
        """Learn, and try every seed."""
        expected = proof.learn()
        self.document["expected"] = {
            "messages": expected.messages, "secs": round(expected.secs, 3), "finite": expected.source.ends,
            "asked": dict(expected.asked), "not_shown": expected.not_shown,
        }  # fmt: skip
        self._tell(expected_text(self.document["expected"]))
        rows: list[dict[str, Any]] = self.document["seeds"]
        for seed in seeds:
            result = proof.try_seed(seed, expected, only)
            rows.append(result.to_dict())
            if len(seeds) == 1 or not result.good:
                self._tell(timeline_text(result))
            self._tell(seed_text(result))
        self.document |= {"good": all(row["good"] for row in rows), "bound": min(1.0, 3 / len(seeds))}

    def end(self) -> None:
        """Print the last lines."""
        self._tell(verdict_text(self.document))
        self._tell(f"to repeat it: {self.document['command']}")


def _command(file: str, arguments: Sequence[str], **options: Any) -> str:
    """The command that repeats this run."""
    words = ["squall", "chaos", file]
    for name, value in options.items():
        for one in [value] if isinstance(value, str | int) else value:
            words += [f"--{name}", str(one)]
    return shlex.join([*words, "--", *arguments])


def _tidy(directory: Path, document: dict[str, Any]) -> None:
    """Remove everything but the logs of seeds that failed."""
    kept = {row["logs"] for row in document["seeds"] if row["logs"]}
    for path in directory.iterdir():
        if str(path) not in kept:
            shutil.rmtree(path)
    if not kept:
        directory.rmdir()
