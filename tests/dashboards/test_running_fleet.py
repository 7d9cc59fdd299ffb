"""A running fleet as Prometheus and a browser see it.

In `make test`, test_ray_metrics.py sees what Ray is told, test_dashboards.py that panels ask for
it, and test_own_ray.py the names of actors.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from process_trees import actors_below
from test_dashboards import DASHBOARDS, queries_of_panels
from thorough import thorough_only

from edgesim.fleet.on_ray.access import Access, choose, show_in_browser

WATCHED = Path(__file__).with_name("watched.yaml")
NAMES = ["gateway", "attic", "cellar", "barn"]
# The limits only end tests that hang.
pytestmark = [thorough_only, pytest.mark.ray, pytest.mark.timeout(400)]


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while not condition():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.5)


@dataclass
class Running:
    """A run of edgesim with Ray's dashboard."""

    process: subprocess.Popen[bytes]
    access: Access
    log: Path

    def ask(self, path: str) -> bytes:
        """What the dashboard answers."""
        headers = {"Authorization": f"Bearer {self.access.token()}"}
        request = urllib.request.Request(self.access.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Running]:
    """The fleet of watched.yaml, whose metrics are exported every two seconds."""
    folder = tmp_path_factory.mktemp("watched")
    with (
        tempfile.TemporaryDirectory(prefix="es-", dir="/tmp", ignore_cleanup_errors=True) as common,
        (folder / "log").open("wb") as log,
    ):
        Path(common).chmod(0o1777)
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        own |= {"TMPDIR": common}
        command = [sys.executable, "-m", "edgesim", "run", str(WATCHED)]
        process = subprocess.Popen(
            [*command, "--out", str(folder / "run")], env=own, stdout=log, stderr=log
        )
        try:
            said = (folder / "log").read_text
            wait_for(lambda: "open it with: edgesim dashboard\n" in said(), process)
            yield Running(process, choose(str(folder / "run"), [Path(common)]), folder / "log")
        finally:
            process.terminate()
            process.wait(120)


@pytest.mark.skipif(
    not shutil.which("prometheus"), reason="needs Prometheus, Debian's `prometheus`"
)
def test_every_query_of_every_panel_returns_data(running, tmp_path):
    """A Prometheus that dies afterwards changes nothing for the run."""
    settings = yaml.safe_load((DASHBOARDS / "prometheus.yml").read_text())
    (scrape,) = settings["scrape_configs"]
    (found,) = scrape["http_sd_configs"]
    settings["global"]["scrape_interval"] = found["refresh_interval"] = "2s"
    found["url"] = found["url"].replace("http://127.0.0.1:8265", running.access.url)
    found["authorization"]["credentials_file"] = str(running.access.token_path)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
    rules = (DASHBOARDS / "rules.yml").read_text().replace("15s", "1s")
    (tmp_path / "rules.yml").write_text(rules)
    with (tmp_path / "log").open("wb") as log:
        prometheus = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        said = (tmp_path / "log").read_text
        listens = r'"Listening on" address=(127\.0\.0\.1:\d+)'
        wait_for(lambda: re.search(listens, said()), prometheus)
        url = f"http://{re.search(listens, said())[1]}/api/v1/query?query="

        def is_without_data(query: str) -> bool:
            for variable in ("$SessionName", "$run"):
                query = query.replace(variable, ".*")
            with urllib.request.urlopen(url + urllib.parse.quote(query), timeout=60) as answer:
                return not json.load(answer)["data"]["result"]

        missing = queries_of_panels()

        def are_all_there() -> bool:
            missing[:] = [query for query in missing if is_without_data(query)]
            return not missing

        try:
            wait_for(are_all_there, running.process)
        except AssertionError:
            pytest.fail(f"no data for {missing}\n{running.log.read_text()[-2000:]}")
    finally:
        prometheus.kill()
        prometheus.wait()
    before = running.log.read_text().count("epoch")
    wait_for(lambda: running.log.read_text().count("epoch") > before, running.process)


def alive_actors(running: Running) -> list[dict[str, str]]:
    """Actors that Ray's dashboard knows and that are built."""
    known = json.loads(running.ask("/logical/actors"))["data"]["actors"].values()
    return [actor for actor in known if actor["state"] == "ALIVE"]


def test_actors_have_the_names_of_their_devices(running):
    wait_for(lambda: len(alive_actors(running)) == len(NAMES), running.process)
    labels = sorted(actor["reprName"] for actor in alive_actors(running))
    assert labels == [f"device-{device} ({name})" for device, name in enumerate(NAMES)]


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_shows_the_fleets_actors_by_name_and_is_not_asked_for_the_token(
    running, tmp_path
):
    log = tmp_path / "chromium.log"
    browsers: list[subprocess.Popen[bytes]] = []

    def browse(url: str) -> bool:
        options = [
            *("--headless", "--disable-gpu", "--no-sandbox", "--window-size=1500,900"),
            "--disable-dev-shm-usage",  # containers have little of it, and pages crash without
            *(f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=30000", "--dump-dom"),
        ]
        with log.open("ab") as said:
            browsers.append(
                subprocess.Popen(["chromium", *options, url], stdout=subprocess.PIPE, stderr=said)
            )
        return True

    wait_for(lambda: len(alive_actors(running)) == len(NAMES), running.process)
    actors = actors_below(psutil.Process(running.process.pid))
    assert actors
    for actor in actors:
        actor.suspend()  # it would train meanwhile
    try:
        shown = ""
        for _ in range(3):  # a browser that crashes shows nothing; that is not what is tested
            assert show_in_browser(running.access, tmp_path, 120, browse), log.read_text()
            shown = browsers[-1].communicate(timeout=200)[0].decode()
            if shown:
                break
    finally:
        for actor in actors:
            actor.resume()
    assert shown, f"Chromium ended with {[b.returncode for b in browsers]}\n{log.read_text()}"
    assert "Authentication Token Required" not in shown
    for device, name in enumerate(NAMES):
        assert f"device-{device} ({name})" in shown
