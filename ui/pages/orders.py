"""The buttons that change something, each with a dialog that says what will happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.shell import order, small_button, text
from squall.ui.sampler import TopologyNow


def confirm(
    title: str, what: str, word: str, carry_out: Callable[[], Any], fields: Callable[[], None] = lambda: None,
    tone: str = "primary",
) -> None:
    """Ask before an order. `fields` makes what is to be filled in; `word`: that of the button that does it."""
    with ui.dialog() as dialog, ui.card().classes("sq-card").style("max-width:560px"):
        ui.label(title).classes("text-h6")
        ui.label(what).classes("sq-soft")
        fields()

        async def go() -> None:
            button.disable()
            if await order(carry_out, f"{title}: done") is None:
                button.enable()
            else:
                dialog.close()

        with ui.element("div").classes("sq-row").style("justify-content:flex-end;margin-top:12px"):
            ui.button("Cancel", on_click=dialog.close, color=None).props("flat no-caps autofocus")
            button = ui.button(word, on_click=go).props(f"unelevated no-caps color={tone}")
    dialog.on("hide", dialog.delete)
    dialog.open()


class Orders:
    """The orders for one topology."""

    def __init__(self, api: ClusterApi, name: str, status: Callable[[], TopologyNow]) -> None:
        self._api, self._name, self._topology = api, name, status

        def plainly(word: str, what: str, carry_out: Callable[[str], str]) -> Callable[[], None]:
            return lambda: confirm(f"{word} {text(name)}", what, word, lambda: carry_out(name))

        deactivation = "Its spouts stop to emit; what is under way is processed."
        given_up = "Slots that were given up after too many deaths are used again."
        with ui.element("div").classes("sq-row sq-orders").props('role=toolbar aria-label="Orders"'):
            for label, icon, ask in (
                ("Activate", "play_arrow", plainly("Activate", "Its spouts emit again.", api.activate)),
                ("Deactivate", "pause", plainly("Deactivate", deactivation, api.deactivate)),
                ("Rebalance", "balance", self._rebalance),
                ("Reset", "restart_alt", plainly("Reset", given_up, api.reset)),
                ("Inject", "bug_report", lambda: inject_fault(api)), ("Heal", "healing", lambda: heal_all(api)),
                ("Kill", "delete_forever", self._kill),
            ):
                small_button(label, icon, ask, "bad" if label == "Kill" else "")

    def _kill(self) -> None:
        secs: dict[str, Any] = {}

        def fields() -> None:
            secs["wait"] = ui.number("Longest wait, in seconds", placeholder="its message timeout", min=0)
            secs["wait"].classes("w-full").props("stack-label")

        what = "It is drained: its spouts stop, and it waits for pending messages. Then it is removed, for good."
        confirm(
            f"Kill {text(self._name)}", what, "Kill",
            lambda: self._api.kill(self._name, secs["wait"].value), fields, tone="negative",
        )

    def _rebalance(self) -> None:
        status = self._topology()
        given: dict[str, Any] = {}

        def fields() -> None:
            wanted = status.workers_wanted
            given["workers"] = ui.number("Workers", value=wanted, min=1, precision=0).classes("w-full")
            ui.label("Executors, where they are to change:").classes("sq-soft")
            with ui.element("div").classes("sq-list"):
                for component, row in status.components.items():
                    given[f"of {component}"] = ui.number(
                        f"{text(component)} (has {row.executors}, {row.tasks_fixed} tasks)", min=1,
                        max=row.tasks_fixed, precision=0,
                    ).classes("w-full").props("dense")

        def carry_out() -> str:
            executors = {key[3:]: int(box.value) for key, box in given.items() if key != "workers" and box.value}
            return self._api.rebalance(self._name, int(given["workers"].value), executors)

        what = "It is drained for up to its message timeout, and spread anew."
        confirm(f"Rebalance {text(self._name)}", what, "Rebalance", carry_out, fields)


def inject_fault(api: ClusterApi) -> None:
    """Ask for a fault, with the catalogue as help."""
    line: dict[str, Any] = {}

    def fields() -> None:
        line["box"] = ui.input("Fault", placeholder="KIND TARGET NAME=VALUE for 10s").classes("w-full")
        with ui.element("div").classes("sq-list").props('tabindex=0 role=region aria-label="What can be broken"'):
            for kind in api.faults():
                ui.label(f"{kind.name}: {kind.meaning}").classes("q-mt-sm")
                ui.label(f"as in: {kind.example}").classes("sq-soft")

    confirm(
        "Inject a fault", "Something breaks on purpose, and heals when its time is over.", "Inject",
        lambda: api.inject(line["box"].value or ""), fields, tone="negative",
    )


def heal_all(api: ClusterApi) -> None:
    confirm("Heal", "All faults that are in force end now, in all topologies and daemons.", "Heal", api.heal)
