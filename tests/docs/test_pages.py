"""Pages of the site: links lead somewhere, and generated pages hold all that they are made from.

`make docs` builds the site itself, and refuses broken links and names of docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path

import generated_pages
import pytest

import edgesim
from edgesim.cli import app
from edgesim.results import columns
from edgesim.scenario.catalog import COMPRESSORS
from edgesim.scenario.guide import guide

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("[a-z]*/README.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts),
]
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


def anchors_of(text):
    """Anchors of headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    for link in LINK.findall(text):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors_of(target.read_text()), link


def test_each_page_is_in_the_navigation():
    trees = re.findall(r"```{toctree}(.*?)```", "".join(p.read_text() for p in PAGES), re.DOTALL)
    listed = set(re.findall(r"^(?:.*<)?([\w/-]+)>?$", "".join(trees), re.MULTILINE))
    listed |= set(re.findall(r'\.\./([\w-]+)[">]', Path(generated_pages.__file__).read_text()))
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= listed


@pytest.fixture(scope="module")
def pages():
    """Text of the generated pages but those of the catalogs, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated_pages, "_PARTS", ["compressors"])
        return dict(generated_pages.pages())


def test_every_key_has_a_heading(pages):
    text = "".join(page for name, page in pages.items() if name.startswith("keys"))
    headings = re.findall(r"^##+ (\S+)$", text, re.MULTILINE)
    sections = {entry.key.partition(".")[0] for entry in guide() if "." in entry.key}
    assert {entry.key for entry in guide()} - sections <= {*headings}
    assert all(f"keys/{section}" in pages for section in [*sections, "sweep"])


def test_every_column_and_metric_has_a_row(pages):
    groups = [value for name, value in vars(columns).items() if name.isupper()]
    found = [c for group in groups if isinstance(group, tuple) for c in group]
    for column in found:
        if isinstance(column, columns.Column):
            assert f"| `{column.name}` |" in pages["columns"], column.name


def test_commands_names_and_parts_are_there(pages):
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        assert f"## edgesim {name}\n" in pages["commands"]
    assert all(f":: edgesim.{name}\n" in pages["python"] for name in edgesim.__all__)
    assert all(f"## {name}\n" in pages["parts/compressors"] for name in COMPRESSORS)


def test_text_is_shown_as_it_is():
    assert generated_pages.md("a|b of x_*, `c|d_` <e>") == r"a\|b of x\_\*, `c\|d_` \<e\>"
