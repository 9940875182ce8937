"""The web pages."""

from __future__ import annotations

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from squall.ui.cluster_api import ClusterApi

__all__ = ["add_pages"]


def add_pages(app: FastAPI, api: ClusterApi) -> None:
    """Serve the pages of a cluster in an application."""
    # What a page sends by polling would be changes by a cookie alone.
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        app, title="Squall", favicon="🌬️", dark=None, language="en-US", binding_refresh_interval=None, tailwind=False,
        gzip_middleware_factory=None, show_welcome_message=False, reconnect_timeout=10.0, message_history_length=100,
    )
