"""What negative controls have in common: the case of a seed runs without a part of the product, or with all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tests.sim.invariants import InvariantBrokenError


@dataclass(frozen=True)
class Control:
    """One guarantee taken away, and what must break for lack of it."""

    kind: ClassVar[str]
    most: ClassVar[int]
    """So many seeds are enough to find one that shows it."""
    off: str
    """What is switched off, in words."""
    breaks: str

    def __str__(self) -> str:
        return f"{self.off} ({self.kind})"

    def run(self, seed: int, is_off: bool = True) -> None:
        """The case of this seed, or with the product whole. InvariantBrokenError."""
        raise NotImplementedError

    def shows(self, seed: int) -> bool:
        """Whether the case of this seed breaks as it must."""
        try:
            self.run(seed)
        except InvariantBrokenError as error:
            return error.invariant == self.breaks
        return False

    def first_seed(self, seeds: Iterable[int] = ()) -> int | None:
        """The first that shows it, of all or of these."""
        return next(filter(self.shows, seeds or range(self.most)), None)
