"""The way to Ray's dashboard: which run has one, where it listens, what it asks for. Without Ray.

Ray's dashboard knows who comes by a cookie with the cluster's token, which it sets where somebody
types the token in. A cookie holds for all ports of a host. So a server of our own on this machine
can set it, before it sends the browser on to the dashboard.
"""

from __future__ import annotations

import json
import os
import secrets
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from edgesim.errors import EdgesimError
from edgesim.fleet.on_ray.private_folder import living_folders

_FILE = "dashboard.json"
_COOKIE = "ray-authentication-token"  # the name that Ray gives it
PAGE = "/#/actors"
SERVICE_DISCOVERY = "/api/prometheus/sd"


class DashboardError(EdgesimError, ValueError):
    """There is no dashboard to show."""


@dataclass(frozen=True, slots=True)
class Access:
    """A dashboard and how to get in.

    Attributes:
        url: where it listens.
        token_path: file with the token that it asks for; None if the user's own settings say it.
        run: place of the run that it belongs to; None for a cluster's.
        started_s: when it was started, by this machine's clock.
    """

    url: str
    token_path: Path | None = None
    run: str | None = None
    started_s: float = 0.0

    @property
    def is_here(self) -> bool:
        """Whether the dashboard listens on this machine's loopback address."""
        try:
            return ip_address(urlsplit(self.url).hostname or "").is_loopback
        except ValueError:
            return False

    def token(self) -> str | None:
        """The token; None where there is none."""
        variables, own = os.environ, Path.home() / ".ray" / "auth_token"
        if self.token_path is None and (token := variables.get("RAY_AUTH_TOKEN")):
            return token
        path = self.token_path or Path(variables.get("RAY_AUTH_TOKEN_PATH") or own)
        try:
            return path.read_text().strip()
        except OSError:
            return None


def leave_word(folder: Path, url: str, token_path: Path | None, run: str) -> None:
    """Note in a run's private folder where its dashboard is."""
    word = {"url": url, "token_path": token_path and str(token_path), "run": run}
    (folder / _FILE).write_text(json.dumps(word))


def running_dashboards(parents: Sequence[Path]) -> list[Access]:
    """Dashboards of this user's runs on this machine, the newest first.

    Args:
        parents: where private folders may be.
    """
    found = []
    for folder in living_folders(parents):
        try:
            path = folder / _FILE
            word, started_s = json.loads(path.read_text()), path.stat().st_mtime
        except FileNotFoundError:  # a run without a dashboard, or one that just ends
            continue
        token_path = word["token_path"] and Path(word["token_path"])
        found.append(Access(word["url"], token_path, word["run"], started_s))
    return sorted(found, key=lambda access: -access.started_s)


def choose(wanted: str | None, parents: Sequence[Path]) -> Access:
    """The dashboard that is meant.

    Args:
        wanted: a run's place, or the address of a dashboard; None for that of the newest run.
        parents: where private folders may be.

    Raises:
        DashboardError: there is none.
    """
    if wanted is not None and urlsplit(wanted).scheme in ("http", "https"):
        return Access(wanted.rstrip("/"))
    running = running_dashboards(parents)
    if not running:
        raise DashboardError(
            "no run of yours has a Ray dashboard on this machine now; start one with `edgesim run`,"
            " or name the address of a cluster's dashboard"
        )
    if wanted is None:
        return running[0]
    place = place_of(wanted)
    for access in running:
        if access.run == place:
            return access
    if "://" not in wanted and not Path(wanted).exists():
        raise DashboardError(f"{wanted}: there is no such run directory")
    others = ", ".join(str(access.run) for access in running)
    raise DashboardError(f"{wanted}: this run has no Ray dashboard here now; these have: {others}")


def place_of(run: Path | str) -> str:
    """A run's place, the same from every folder: a URI, or an absolute path."""
    return str(run) if "://" in str(run) else str(Path(run).absolute())


def show_in_browser(
    access: Access,
    folder: Path,
    timeout_s: float,
    open_url: Callable[[str], bool] = webbrowser.open,
) -> bool:
    """Open a dashboard in a browser that need not be told the token; False if that did not work.

    The browser gets the name of a file that this user alone can read. The file leads to a server
    that answers once: other users see the command line of a browser, but not what is in the file.

    Args:
        access: a dashboard on this machine.
        folder: which this user alone may enter.
        timeout_s: how long the browser may take.
        open_url: opens a URL; False if there is no browser.
    """
    secret = f"/{secrets.token_urlsafe(32)}"
    server = _server(secret, access)
    page = folder / "dashboard.html"
    try:
        port = server.server_address[1]
        host = urlsplit(access.url).hostname
        target = f"http://{host}:{port}{secret}"
        page.touch(mode=0o600)
        page.write_text(f'<meta http-equiv="refresh" content="0; url={target}">')
        if not open_url(page.as_uri()):
            return False
        deadline_s = monotonic() + timeout_s
        while not server.has_answered and monotonic() < deadline_s:
            server.timeout = max(deadline_s - monotonic(), 0.01)
            server.handle_request()
        return server.has_answered
    finally:
        server.server_close()
        page.unlink(missing_ok=True)


class _Server(HTTPServer):
    has_answered = False


def _server(secret: str, access: Access) -> _Server:
    token = access.token()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server = self.server
            assert isinstance(server, _Server)
            if server.has_answered or not secrets.compare_digest(self.path, secret):
                self.send_error(404)
                return
            server.has_answered = True
            self.send_response(302)
            self.send_header("Location", access.url + PAGE)
            if token is not None:
                cookie = f"{_COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
                self.send_header("Set-Cookie", cookie)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing: addresses of requests hold the secret."""

    return _Server((urlsplit(access.url).hostname or "127.0.0.1", 0), Handler)
