"""Outside: what a `Source` and a `Sink` have in common, a connection that may be cut off, and secrets.

Guarantees: a secret is written `${NAME}` in what a user passes, and read from the environment where the worker runs; so
it is in no pickled topology. `hide` takes secrets out of the texts of errors before these are told.

Thread: that of the source or sink.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

_VARIABLE = re.compile(r"\$\{(\w+)\}", re.ASCII)
_PASSWORDS = re.compile(r"://[^/@:]*:([^@]+)@|[?&]password=([^&]*)")


class Outside:
    """Something outside, to which a component is connected."""

    away: tuple[type[BaseException], ...] = (OSError,)
    """Errors that mean that the other side is away: it is connected again, with growing delays."""
    _other_side: Any = None
    """What `disconnect` closes, if a subclass does not define it: set it in `connect`."""
    _secrets: frozenset[str] = frozenset()

    def connect(self, context: TopologyContext) -> None:
        """Connect to the other side. An error in `away` has it called again; any other ends the worker."""

    def disconnect(self) -> None:
        """Called at an orderly end, and after an error in `away`, also of `connect`."""
        other_side, self._other_side = self._other_side, None
        if other_side is not None:
            other_side.close()

    def fill(self, text: str, written: Callable[[str], str] = str) -> str:
        """Put the values of environment variables in place of their `${NAME}`s, as `written` writes them. UsageError if
        one is not set."""
        for name in _VARIABLE.findall(text):
            if not (secret := os.environ.get(name)):
                raise UsageError(
                    f"{type(self).__name__} needs the environment variable {name}, which is not set where its worker "
                    "runs; set it for `squall run`, or for `squall up`"
                )
            self._secrets |= {secret, written(secret)}
            text = text.replace(f"${{{name}}}", written(secret))
        return text

    def fill_url(self, url: str) -> str:
        """The same for a URL, where characters such as / and @ in a secret are written %2F and %40."""
        return self.fill(url, partial(quote, safe=""))

    def hide(self, text: str) -> str:
        """Put `***` in place of the secrets in a text."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def cut_off(self, error: BaseException) -> str:
        """What the operator is told when the other side is away."""
        return f"{type(self).__name__} is cut off: {self.hide(text_of_error(error))}; it tries again"


def check_installed(who: str, module: str, package: str, extra: str) -> None:
    """UsageError if the client library is not there that a connector needs."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f'{who} needs {package}: pip install "squall[{extra}]"')


def check_secret(who: str, what: str, text: str) -> None:
    """UsageError if a text is no `${NAME}`."""
    if not _VARIABLE.fullmatch(text):
        raise UsageError(f"{who} has its {what} written out; allowed: ${{NAME}}, for the environment variable NAME")


def check_url(who: str, url: str, *schemes: str) -> None:
    """UsageError if a text is no URL of these schemes, or has its password written out."""
    if not isinstance(url, str) or not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        raise UsageError(f"{who} has url {shown_url(url)}; allowed: {schemes[0]}://HOST and more")
    for parts in _PASSWORDS.findall(url):
        check_secret(who, "password", "".join(parts))


def shown_url(url: object) -> str:
    """Return a URL as errors show it: without what may be a password."""
    return re.sub("//.*@", "//***@", repr_of(url))
