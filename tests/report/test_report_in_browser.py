"""The page as a browser shows it, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from reported_runs import content

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian's package chromium)"
)

# What a person would do with keys: choose the last of each figure's views, move each slider. Then
# the page notes how wide it is.
ACTIONS = """
<script>
const ready = setInterval(async () => {
  if (document.body.dataset.drawn !== "yes") { return; }
  clearInterval(ready);
  for (const section of document.querySelectorAll("details")) { section.open = true; }
  for (const group of document.querySelectorAll("fieldset")) {
    const inputs = group.querySelectorAll("input");
    const last = inputs[inputs.length - 1];
    last.focus();
    if (document.activeElement !== last) { console.error("cannot be focused", last); }
    last.click();
  }
  for (const slider of document.querySelectorAll("input[type=range]")) {
    slider.focus();
    slider.value = slider.max;
    slider.dispatchEvent(new Event("input"));
  }
  setTimeout(() => {
    document.body.dataset.wide = document.documentElement.scrollWidth;
    document.body.dataset.done = "yes";
  }, 1500);
}, 50);
</script>
"""


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_drawn_and_nothing_is_reported_wrong(page, width, tmp_path):
    path, found = tmp_path / "page.html", content(page)
    path.write_text(f"{page}{ACTIONS}", encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},900",
            "--virtual-time-budget=60000",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    body = re.search(r"<body[^>]*>", done.stdout)[0]
    assert 'data-done="yes"' in body
    drawn = re.findall(
        r'<div class="chart[^"]*" data-figure="([^"]+)" data-drawn="yes"', done.stdout
    )
    assert set(drawn) == set(found["figures"])
    assert done.stdout.count("<svg") >= len(drawn)
    # Headless windows have a least width of their own.
    assert int(re.search(r'data-wide="(\d+)"', body)[1]) <= max(width, 500)
