"""`edgesim dashboard`: the way to Ray's dashboard of a run."""

from __future__ import annotations

import socket
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from rich.console import Console

from edgesim.fleet.on_ray.access import PAGE, SERVICE_DISCOVERY, Access, choose, show_in_browser
from edgesim.fleet.on_ray.private_folder import temporary_folders

BROWSER_TIMEOUT_S = 60.0


def show_dashboard(wanted: str | None, console: Console, *, opens: bool) -> None:
    """Print how to get in, and open the dashboard in a browser if there is one.

    Args:
        wanted: a run, or the address of a dashboard; None for the newest run.
        console: where it is printed.
        opens: look for a browser.

    Raises:
        DashboardError: there is no such dashboard.
    """
    access = choose(wanted, temporary_folders())
    for line in _ways_in(access):
        console.print(line)
    if not opens or not access.is_here:
        return
    with TemporaryDirectory(prefix="edgesim-login-") as folder:  # this user's alone
        is_open = show_in_browser(access, Path(folder), BROWSER_TIMEOUT_S, _open)
    console.print("opened in the browser" if is_open else "found no browser here")


def _ways_in(access: Access) -> list[str]:
    token, port = access.token(), urlsplit(access.url).port or 80
    lines = [f"run        {access.run}"] if access.run else []
    lines += [
        f"address    {access.url}{PAGE}",
        f"token      {token or 'none, or unknown here'}",
        f"metrics    {access.url}{SERVICE_DISCOVERY} (for Prometheus, with the token)",
    ]
    if access.is_here:
        host = socket.gethostname()
        lines.append(f"elsewhere  ssh -N -L {port}:127.0.0.1:{port} {host}, then the address above")
    return lines


def _open(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
