"""Maps the rooms at the top of the repository into the package `squall`; all else is in pyproject.toml.

Relies on no link of squall/: an archive (`git archive --format=zip`, GitHub's "Download ZIP") and a checkout with
`core.symlinks=false` have text files in their place, and a wheel that was built there by following links had 68 of
425 modules.
"""

from __future__ import annotations

from setuptools import find_packages, setup

ROOMS = ("connect", "engine", "ipc", "pipeline", "scheduler", "ui")

setup(
    packages=[
        *find_packages(include=["squall", "squall.*"], exclude=[f"squall.{room}*" for room in ROOMS]),
        *(f"squall.{package}" for room in ROOMS for package in find_packages(include=[room, f"{room}.*"])),
    ],
    package_dir={f"squall.{room}": room for room in ROOMS},
)
