"""The libraries that draw are put together once for a user, and never taken damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import vl_convert

from edgesim.report.libraries import libraries


@pytest.fixture
def bundles(tmp_path, monkeypatch):
    """Number of times that libraries were put together; an empty home."""
    made = []

    def bundle(snippet, vl_version):
        made.append(vl_version)
        return f"{snippet} '</script>'"

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    libraries.cache_clear()
    yield made
    libraries.cache_clear()


def again():
    libraries.cache_clear()
    return libraries()


def test_they_are_kept_for_the_next_report(bundles):
    first = libraries()
    assert "<\\/script>" in first
    assert again() == first
    assert len(bundles) == 1


def test_damaged_ones_are_put_together_again(bundles, tmp_path):
    first = libraries()
    (path,) = (tmp_path / ".cache" / "edgesim").iterdir()
    path.write_bytes(path.read_bytes().replace(b"vega", b"evil"))
    assert again() == first
    assert len(bundles) == 2


def test_a_home_that_cannot_be_written_does_not_matter(bundles, tmp_path):
    (tmp_path / ".cache").write_text("a file")
    assert again() == again()
    assert len(bundles) == 2
