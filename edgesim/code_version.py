"""Which code of edgesim runs here: versions alone do not tell two checkouts apart."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("edgesim", "topologies")
_SHORT = 8  # characters of a digest that people are shown
_GIT = (  # writes nothing, so that it stands in nobody's way
    *("git", "--no-optional-locks", "status"),
    *("--porcelain=v2", "--branch", "--untracked-files=no"),
)
_GIT_S = 10.0  # after which a checkout on a slow disk has no commit
_COMMIT = "# branch.oid "
_SHORT_COMMIT = 9


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """Code of edgesim.

    Attributes:
        version: of the package.
        digest: of all its Python files; empty if it is not on record.
        commit: of git, with `, changed` where tracked files differ from it; None if the code is
            no checkout.
    """

    version: str
    digest: str
    commit: str | None

    @classmethod
    def of(cls, environment: Mapping[str, Any]) -> CodeVersion:
        """The code with which a run began, by its environment.json."""
        code = environment.get("code", {})
        return cls(
            environment.get("packages", {}).get("edgesim", "of an unknown version"),
            code.get("digest", ""),
            code.get("commit"),
        )

    @property
    def written(self) -> dict[str, str | None]:
        """As environment.json has it, which has the version among those of all packages."""
        return {"digest": self.digest, "commit": self.commit}

    def differs(self, other: CodeVersion) -> bool:
        """Whether it is, or may be, other code: code that is not on record may be any."""
        return self.digest != other.digest

    def __str__(self) -> str:
        known = [f"commit {self.commit}"] if self.commit else []
        known += [f"code {self.digest[:_SHORT]}" if self.digest else "code not on record"]
        return f"edgesim {self.version} ({', '.join(known)})"


@cache
def code_version() -> CodeVersion:
    """The code that runs here, as its files were when it was first asked for."""
    root = Path(__file__).resolve().parents[1]
    return CodeVersion(version("edgesim"), digest_of(root), commit_of(root))


def digest_of(root: Path, packages: Sequence[str] = _PACKAGES) -> str:
    """Digest of all Python files of some packages in a folder; empty if they can't be read.

    Hidden files, as editors leave them, are none of the code.
    """
    digest, num_files = blake2b(digest_size=16), 0
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).parts
            if any(part.startswith(".") for part in parts):
                continue
            try:
                content = path.read_bytes()
            except OSError:  # removed meanwhile
                return ""
            name = "/".join(parts).encode()
            digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
            num_files += 1
    return digest.hexdigest() if num_files else ""


def commit_of(root: Path) -> str | None:
    """The commit of a checkout; None if there is none, or no git that could say."""
    if not (root / ".git").exists():
        return None
    # A variable such as GIT_DIR would name another checkout.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        found = subprocess.run(  # noqa: S603 (constant words)
            _GIT, cwd=root, env=own, capture_output=True, text=True, check=True, timeout=_GIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = found.stdout.splitlines()
    commit = next((line for line in lines if line.startswith(_COMMIT)), "")
    is_changed = any(not line.startswith("#") for line in lines)
    short = commit.removeprefix(_COMMIT)[:_SHORT_COMMIT]
    return f"{short}, changed" if short and is_changed else short or None
