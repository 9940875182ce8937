from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.standing_tools import Standing, directory


@pytest.fixture
def cluster() -> Iterator[Standing]:
    """The directory of a cluster that was not begun."""
    with directory() as made:
        yield made
