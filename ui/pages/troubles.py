"""What went wrong in a topology: errors, failures, dead letters, restarts, faults, logs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import asdict
from nicegui import run, ui

from squall.engine.errors import SquallError
from squall.engine.report.document import to_document
from squall.engine.report.failure_log import FailureRecord, equal_failures
from squall.scheduler.records.dead_letters import DeadLetter
from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.orders import confirm
from squall.ui.pages.overview import fault_table
from squall.ui.pages.shell import Table, card, clock, lines, order, small_button, text
from squall.ui.sampler import TopologyNow


class ErrorList:
    """Last words of workers, errors of components by component and reason."""

    def __init__(self, component: str = "") -> None:
        """`component`: the only one whose errors are shown; without it, those of all, and deaths of workers."""
        self._component = component
        if not component:
            with card("Deaths of workers", "Equal ones are one line."):
                self._deaths = _Unfolding("No worker has died.")
        with card("Failures by reason", "Attempts at a message that did not end in an ack."):
            self._reasons = Table(
                [("component", "component", ""), ("reason", "reason", ""), ("count", "times", "n")],
                "Nothing has failed.", rows_per_page=20, sort="count",
            )
        with card("Errors", "The last failures of each component, equal ones as one line; press one for its message."):
            self._errors = _Unfolding("No component has reported an error.")

    def update(self, status: TopologyNow) -> None:
        """Show what has failed."""
        failures = {
            name: failed for name, failed in status.failures.items() if self._component in ("", name)
        }
        self._reasons.show(
            {"component": name, "reason": reason, "count": count}
            for name, failed in failures.items() for reason, count in failed.counts.items()
        )
        began = status.at_unix_secs - status.uptime_secs
        self._errors.show([
            (f"{len(equal)} × {name}: {equal[-1].error} {equal[-1].where}", _described(equal, began))
            for name, failed in failures.items() for equal in reversed(equal_failures(failed.last))
        ])
        if self._component:
            return
        stacks = {(row.worker, row.incarnation): row.error for row in status.errors}
        self._deaths.show([
            ((f"{row.times} × {row.worker}, last at {clock(began + row.last_secs)}: {row.reason}; "
              f"{row.error}"),
             stacks.get((row.worker, row.incarnation), row.error))
            for row in status.deaths
        ])


def _described(equal: list[FailureRecord], began_unix_secs: float) -> str:
    """Tell when equal errors came, and the message of the last."""
    first, last = (clock(began_unix_secs + failure.at_secs) for failure in (equal[0], equal[-1]))
    failure = equal[-1]
    who = f" by message {failure.message_id} of {failure.spout}, in attempt {failure.attempt}"
    return f"First at {first}, last at {last}{who * bool(failure.attempt)}. Counted are the last, which are kept."


class _Unfolding:
    """Lines that open to a stack each; made anew only when they have changed."""

    def __init__(self, empty: str) -> None:
        """`empty`: what is shown without lines."""
        self._empty, self._box = empty, ui.element("div").style("width:100%")
        self._rows: list[tuple[str, str]] | None = None

    def show(self, rows: list[tuple[str, str]]) -> None:
        """Show these lines, each with its stack."""
        if rows == self._rows:
            return
        self._rows = rows
        self._box.clear()
        with self._box:
            if not rows:
                ui.label(self._empty).classes("sq-soft")
            for title, stack in rows:
                box = ui.expansion(text(title)).classes("w-full")
                with box, ui.element("pre").classes("sq-pre").props("tabindex=0"):
                    ui.label(lines(stack) or "It left no words.")


class DeadLetterList:
    """Messages that were given up."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        self._ledger: tuple[Any, ...] = ()
        with card("Dead letters", "Messages that were given up. Replay gives them back to their spout."):
            if not api.read_only:
                self._all = small_button("Replay all", "replay", self._replay_all)
            self._table = Table(
                [("values", "values", "wrap"), ("why", "why", "wrap"), ("where", "failed in", ""),
                 ("at", "when", "at"), ("attempt", "attempts", "n"), ("spout", "spout", ""),
                 ("message_id", "message", ""),
                 *([] if api.read_only else [("replay", "", "replay")])],
                "None is here: nothing was given up, or all of it was given back.", "id", rows_per_page=10,
                filtered=True, sort="at", on_pick=self._replay,
            )

    def update(self, status: TopologyNow) -> None:
        # The ledger is a file: it is read only if there can be something new.
        known = status.dead_letters, len(status.restarts), status.replayed
        if known == self._ledger:
            return
        self._ledger = known
        self._read()

    def _read(self) -> None:
        rows = list(map(letter_row, self._api.dead_letters(self._name)))
        self._table.show(rows)
        if not self._api.read_only:
            self._all.set_visibility(bool(rows))

    async def _replay(self, event: Any) -> None:
        await order(lambda: self._api.replay(self._name, [event.args]), "Given back to its spout")
        self._read()

    def _replay_all(self) -> None:
        what = "Every dead letter is given back to its spout, which emits it again."
        confirm("Replay all dead letters", what, "Replay", lambda: self._api.replay(self._name))
        self._ledger = ()


def letter_row(letter: DeadLetter) -> dict[str, Any]:
    """Show a dead letter. One that ended its worker has neither error nor component: the reason says why, the worker
    where."""
    return {
        **to_document(letter), "why": ": ".join(filter(None, (letter.reason, letter.error))),
        "where": letter.component or letter.worker, "at": datetime.fromisoformat(letter.at).timestamp(),
    }


class Events:
    """Restarts, and faults that began, in the order of time."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        with card("Faults in force"):
            self._faults = fault_table()
        with card("Restarts and faults", "Of the last hour, as marked in the charts; the newest first."):
            self._table = Table(
                [("at_unix_secs", "when", "at"), ("kind", "what", ""), ("text", "", "wrap")],
                "Nothing has died or was broken on purpose.", rows_per_page=20,
            )

    def update(self, status: TopologyNow) -> None:
        self._faults.show(map(asdict, status.faults))
        self._table.show(map(asdict, reversed(self._api.history(self._name, 3600.0, 1).marks)))


class LogSearch:
    """The workers' output."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        self._api, self._name = api, name
        with card("Logs", "The last lines of the workers' output, with a search; press Enter to look again."):
            with ui.element("div").classes("sq-row"):
                self._search = ui.input("Text to search").props("dense outlined clearable")
                self._search.style("flex:1 1 220px")
                self._worker = ui.select({"": "all workers"}, value="", label="Worker").props("dense outlined")
                self._worker.style("flex:0 1 180px")
                ui.button("Search", icon="search", on_click=self._find).props("unelevated dense no-caps")
            self._search.on("keydown.enter", self._find)
            with ui.element("pre").classes("sq-pre").props('tabindex=0 aria-label="Lines"').style("margin-top:10px"):
                self._lines = ui.label("…")
        ui.timer(0.01, self._find, once=True)

    def update(self, status: TopologyNow) -> None:
        workers = {"": "all workers", **{row.worker: row.worker for row in status.workers}}
        if workers != self._worker.options:
            self._worker.set_options(workers, value=self._worker.value if self._worker.value in workers else "")

    async def _find(self) -> None:
        try:
            found = await run.io_bound(
                self._api.logs, self._name, self._worker.value or "", self._search.value or "", 500)
        except SquallError as error:
            self._lines.set_text(text(error))
            return
        none = "No line has this text." if self._search.value else "Its workers have printed nothing."
        self._lines.set_text("\n".join(f"{row['worker']}  {text(row['line'])}" for row in found or ()) or none)
