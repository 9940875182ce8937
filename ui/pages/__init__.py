"""The web pages. They get all they show and do from `ClusterApi`.

The address of a page says what it shows: /, /topology/NAME, /topology/NAME/component/COMPONENT.
"""

from __future__ import annotations

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from squall.ui.cluster_api import ClusterApi
from squall.ui.pages.component_page import ComponentPage
from squall.ui.pages.overview import Overview
from squall.ui.pages.topology_page import TopologyPage, missing

__all__ = ["add_pages"]


def add_pages(app: FastAPI, api: ClusterApi) -> None:
    """Serve the pages of a cluster in an application."""

    @ui.page("/")
    def overview() -> None:
        Overview(api)

    @ui.page("/topology/{name}")
    def topology(name: str, tab: str = "") -> None:
        if api.sampler.has(name):
            TopologyPage(api, name, tab)
        else:
            missing(api, name)

    @ui.page("/topology/{name}/component/{component}")
    def of_component(name: str, component: str) -> None:
        if api.sampler.has(name) and component in api.topology(name).components:
            ComponentPage(api, name, component)
        else:
            missing(api, name)

    # What a page sends by polling would be changes by a cookie alone.
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        app, title="Squall", favicon="🌬️", dark=None, language="en-US", binding_refresh_interval=None, tailwind=False,
        gzip_middleware_factory=None, show_welcome_message=False, reconnect_timeout=10.0, message_history_length=100,
    )
