"""Checkouts of one version are told apart by the digest of their files."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from edgesim.code_version import CodeVersion, code_version, commit_of, digest_of


def test_a_digest_is_of_names_and_contents_of_python_files(tmp_path):
    def digest(**files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        (folder / "edgesim").mkdir(parents=True)
        for name, text in files.items():
            (folder / "edgesim" / name.replace("_", ".")).write_text(text)
        return digest_of(folder)

    assert digest(a_py="x", b_py="y") == digest(b_py="y", a_py="x", notes_txt="z")
    others = [{"a_py": "x"}, {"a_py": "xy", "b_py": ""}, {"a_py": "x", "c_py": "y"}, {"a_py": "z"}]
    assert len({digest(**files) for files in others}) == len(others)


def test_what_is_not_on_record_may_be_other_code():
    here, unknown = code_version(), CodeVersion.of({})
    assert here.differs(unknown)
    assert unknown.differs(here)
    assert not here.differs(CodeVersion.of({"code": here.written}))
    assert here.differs(CodeVersion("0.1.0", "0" * 32, None))


def test_people_read_version_commit_and_the_beginning_of_the_digest():
    assert str(CodeVersion("1.2", "0123456789ab", "abc, changed")) == (
        "edgesim 1.2 (commit abc, changed, code 01234567)"
    )
    assert str(CodeVersion("1.2", "", None)) == "edgesim 1.2 (code not on record)"


def test_hidden_files_are_none_of_the_code_and_a_dangling_link_is_no_error(tmp_path):
    folder = tmp_path / "edgesim"
    folder.mkdir()
    assert digest_of(tmp_path) == "", "there is no code"
    (folder / "run.py").write_text("x")
    digest = digest_of(tmp_path)
    (folder / ".#run.py").symlink_to("nobody@nowhere")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "run.py").write_text("y")
    assert digest_of(tmp_path) == digest
    (folder / "gone.py").symlink_to("nowhere")
    assert digest_of(tmp_path) == ""


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git here")
def test_the_commit_of_a_checkout_says_whether_files_differ_from_it(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    (tmp_path / "a.py").write_text("x")
    assert commit_of(tmp_path) is None
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    commit = git("rev-parse", "HEAD").stdout[:9]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    (tmp_path / "notes.txt").write_text("not tracked")
    assert commit_of(tmp_path) == commit
    (tmp_path / "a.py").write_text("y")
    assert commit_of(tmp_path) == f"{commit}, changed"


def test_without_a_git_that_answers_there_is_no_commit(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None
