"""The way to Ray's dashboard: which run's it is, and a login without typing its token."""

from __future__ import annotations

import http.client
import re
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from edgesim.cli import app
from edgesim.fleet.on_ray.access import (
    Access,
    DashboardError,
    choose,
    leave_word,
    place_of,
    running_dashboards,
    show_in_browser,
)
from edgesim.fleet.on_ray.private_folder import private_folder

URL = "http://127.0.0.1:8265"


@pytest.fixture
def runs(tmp_path):
    """Two runs that go on, and one without a dashboard."""
    with ExitStack() as stack:
        for number, run in enumerate(("/runs/first", "/runs/second", None)):
            folder = stack.enter_context(private_folder(tmp_path))
            if run:
                (folder / "token").write_text(f"secret-{number}\n")
                leave_word(folder, f"http://127.0.0.1:{8265 + number}", folder / "token", run)
        yield tmp_path


def test_dashboards_of_runs_that_go_on_are_found_by_their_run(runs):
    assert {access.run for access in running_dashboards([runs, runs])} == {
        *("/runs/first", "/runs/second")
    }
    second = choose("/runs/second", [runs])
    assert (second.url, second.token(), second.is_here) == (
        *("http://127.0.0.1:8266", "secret-1", True),
    )
    assert choose(None, [runs]).run == running_dashboards([runs])[0].run
    other = runs / "other"
    with pytest.raises(DashboardError, match=f"{other}: there is no such run directory"):
        choose(str(other), [runs])
    other.mkdir()
    with pytest.raises(DashboardError, match=f"{other}: this run has no Ray dashboard here now"):
        choose(str(other), [runs])


def test_a_run_that_has_ended_has_no_dashboard(tmp_path):
    with private_folder(tmp_path) as folder:
        leave_word(folder, URL, None, "/runs/first")
    with pytest.raises(DashboardError, match="no run of yours has a Ray dashboard"):
        choose(None, [tmp_path])


def test_a_cluster_is_named_by_its_address_and_has_the_users_token(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    cluster = choose("http://head:8265/", [])
    assert cluster == Access("http://head:8265")
    assert (cluster.is_here, cluster.token()) == (False, None)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-home\n")
    assert cluster.token() == "of-home"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-variable")
    assert cluster.token() == "of-variable"


def test_a_place_is_the_same_from_everywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert place_of("run") == place_of(Path("run")) == str(tmp_path / "run")
    assert place_of("s3://bucket/run") == "s3://bucket/run"


def test_a_browser_gets_the_token_as_a_cookie_once_and_nobody_else(tmp_path):
    (tmp_path / "token").write_text("secret")
    access, answers = Access(URL, tmp_path / "token"), []

    def ask(path: str, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        answers.append((answer.status, answer.getheader("Location"), answer.headers["Set-Cookie"]))
        connection.close()

    def browse(url: str) -> bool:
        page = Path(unquote(urlsplit(url).path))
        assert page.stat().st_mode & 0o077 == 0, "others could read the secret"
        target = urlsplit(re.search(r"url=([^\"]+)", page.read_text())[1])

        def go() -> None:
            ask("/guess", target.port)
            ask(target.path, target.port)

        browsers.append(threading.Thread(target=go))
        browsers[0].start()
        return True

    browsers: list[threading.Thread] = []
    assert show_in_browser(access, tmp_path, 60, browse)
    browsers[0].join()
    cookie = "ray-authentication-token=secret; Path=/; HttpOnly; SameSite=Strict"
    assert answers == [(404, None, None), (302, f"{URL}/#/actors", cookie)]
    assert not (tmp_path / "dashboard.html").exists()


@pytest.mark.parametrize("starts", [False, True])
def test_without_a_browser_it_says_so(tmp_path, starts):
    """There is none, or it never comes."""
    assert not show_in_browser(Access(URL), tmp_path, 0.05, lambda _: starts)


def test_the_command_prints_the_ways_in(runs, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(runs))
    said = CliRunner().invoke(app, ["dashboard", "/runs/first", "--no-open"]).stdout
    assert "address    http://127.0.0.1:8265/#/actors\n" in said
    assert "token      secret-0\n" in said
    assert "metrics    http://127.0.0.1:8265/api/prometheus/sd" in said
    assert "ssh -N -L 8265:127.0.0.1:8265 " in said
