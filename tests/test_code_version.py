"""Checkouts of one version are told apart by the digest of their files."""

from __future__ import annotations

from edgesim.code_version import CodeVersion, code_version, digest_of


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


def test_what_is_not_on_record_is_neither_the_same_nor_other_code():
    here, unknown = code_version(), CodeVersion.of({})
    assert not here.differs(unknown)
    assert not unknown.differs(here)
    assert not here.differs(CodeVersion.of({"code": here.written}))
    assert here.differs(CodeVersion("0.1.0", "0" * 32, None))


def test_people_read_version_commit_and_the_beginning_of_the_digest():
    assert str(CodeVersion("1.2", "0123456789ab", "abc, changed")) == (
        "edgesim 1.2 (commit abc, changed, code 01234567)"
    )
    assert str(CodeVersion("1.2", "", None)) == "edgesim 1.2"
