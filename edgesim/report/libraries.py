"""The JavaScript that draws a report's figures: Vega, Vega-Lite and Vega-Embed, in one text."""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from importlib.metadata import version
from pathlib import Path

from edgesim.storage.store import StorageError, Store

_log = logging.getLogger(__name__)


@cache
def libraries() -> str:
    """The libraries as the installed packages have them, for a script element.

    To put them together takes 2 s of a core, so the text is kept in ~/.cache/edgesim.
    """
    import altair as alt

    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    vega_lite = f"{major}.{minor}"
    name = f"vega-lite-{vega_lite}-of-{version('vl-convert-python')}.js"
    kept = _cache()
    if kept is not None and (text := _read(kept, name)) is not None:
        return text
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=vega_lite
    )
    text = bundle.replace("</script", "<\\/script")
    if kept is not None:
        _write(kept, name, text)
    return text


def _cache() -> Store | None:
    """The user's folder for such files; None for a user without a home."""
    try:
        return Store.at(Path.home() / ".cache" / "edgesim")
    except RuntimeError:
        return None


def _read(kept: Store, name: str) -> str | None:
    """A text that was kept; None if it is not there, or not what was written."""
    try:
        digest, _, data = kept.read(name).partition(b"\n")
    except StorageError:
        return None
    if hashlib.sha256(data).hexdigest().encode() != digest:
        return None
    return data.decode()


def _write(kept: Store, name: str, text: str) -> None:
    data = text.encode()
    try:
        kept.make()
        kept.write(name, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    except StorageError as error:  # the next report puts them together again
        _log.debug("the libraries of reports are not kept: %s", error)
