"""References become objects; what can't is refused with key and reason."""

import importlib
import pickle
import sys
import traceback
from functools import partial
from hashlib import blake2b
from pathlib import Path

import pytest

from edgesim.assembly.parts import own_parts
from edgesim.assembly.parts.options import options_of
from edgesim.assembly.parts.own_parts import call, load_part, make_part
from edgesim.assembly.preparation import prepare
from edgesim.errors import ScenarioError, did_you_mean
from edgesim.scenario import load_scenario
from edgesim.scenario.own_parts import OwnPart, package_digest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
QUICKSTART = ROOT / "scenarios/quickstart.yaml"

GOOD = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    strength: float = 1.0

    def do(self):
        return 1 / 0

number = 3
"""


MINE = "/gone/mine.py:Mine"


def part_of(source: str, name: str = "Mine", place: str = "/gone/mine.py") -> OwnPart:
    return OwnPart(place, name, source, blake2b(source.encode(), digest_size=16).hexdigest())


def test_a_module_is_made_from_its_text_once():
    """Elsewhere than where its file is: the file is not there."""
    part = part_of(GOOD)
    kind = load_part(part, "key")
    assert kind is load_part(part, "key")
    made = make_part(part, "key", {"strength": 2.0})
    assert made == kind(2.0)
    assert pickle.loads(pickle.dumps(made)) == made, "its class is found by its module's name"


def test_tracebacks_show_lines_of_a_file_that_is_not_there():
    part = part_of(GOOD + "# shown\n", place="/gone/shown.py")  # of no other test
    with pytest.raises(ZeroDivisionError) as caught:
        make_part(part, "key", {}).do()
    assert "return 1 / 0" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("source", "name", "options", "said"),
    [
        (GOOD, "Mines", {}, "/gone/mine.py has no Mines; did you mean Mine?"),
        (GOOD, "number", {}, "is no class or function"),
        ("def Mine(a, /): ...", "Mine", {}, "can't be called with nothing: missing a required"),
        (
            "def Mine():\n    raise ValueError('no\\nluck')",
            "Mine",
            {},
            "fails at /gone/mine.py:2: ValueError: no luck",
        ),
        (
            "import nonsense_of_tests",
            "Mine",
            {},
            "fails at /gone/mine.py:1: ModuleNotFoundError: No module",
        ),
        ("x = (", "Mine", {}, "fails at /gone/mine.py:1: SyntaxError"),
    ],
)
def test_what_does_not_work_is_refused_in_one_line(source, name, options, said):
    with pytest.raises(ScenarioError) as caught:
        make_part(part_of(source, name), "gossip.algorithm", options)
    assert str(caught.value).startswith("gossip.algorithm: /gone/mine.py")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "override",
    [
        "gossip.algorithm={path}:json",
        "gossip.compressor={{kind: '{path}:json'}}",
        "data.source={path}:json",
        "data.partition={{kind: '{path}:json'}}",
        "topology={{kind: '{path}:json'}}",
    ],
)
def test_a_module_that_a_file_imports_is_no_part(tmp_path, override):
    path = tmp_path / "mine.py"
    path.write_text("import json\n")
    with pytest.raises(ScenarioError, match="json is no class or function"):
        prepare(load_scenario(QUICKSTART, (override.format(path=path),)))


OPTIONS = """
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

@dataclass(frozen=True)
class Mine:
    \"\"\"Something.

    Attributes:
        fade: share that is left,
            in (0, 1].
    \"\"\"

    fade: Annotated[float, Field(gt=0, le=1)]
    kind: Literal["one", "other"] = "one"
    count: int | None = None
    names: list[str] = ()
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {},
            "gossip.options.fade is missing; /gone/mine.py:Mine needs it; must be a number in (0,",
        ),
        ({"fade": 2.0}, "gossip.options.fade is 2.0; must be a number in (0, 1]"),
        ({"fade": float("nan")}, "gossip.options.fade is nan; must be"),
        (
            {"fade": 1, "kind": "two"},
            "gossip.options.kind is the text 'two'; must be one of one, other",
        ),
        ({"fade": 1, "count": 1.5}, "gossip.options.count is 1.5; must be a whole number or null"),
        (
            {"fade": 1, "cuont": 1},
            "gossip.options.cuont is no option of /gone/mine.py:Mine; did you mean count?",
        ),
    ],
)
def test_options_are_held_to_the_annotations(options, said):
    with pytest.raises(ScenarioError) as caught:
        make_part(part_of(OPTIONS), "gossip.algorithm", options)
    assert said in str(caught.value)


GETS = ", and it is none of the arguments that such a part gets (labels, num_devices)"


@pytest.mark.parametrize(
    ("arguments", "offered", "said"),
    [
        ("targets, num_devices", (), f"targets is missing; {MINE} needs it{GETS}"),
        ("targets", ("labels", "num_devices"), f"targets is missing; {MINE} needs it{GETS}"),
        ("num_device: int", ("labels", "num_devices"), f"{GETS}; must be a whole number"),
        ("labels, num_devices, share", (), f"share is missing; {MINE} needs it"),
    ],
)
def test_an_argument_that_has_another_name_is_told_with_those_that_are_given(
    arguments, offered, said
):
    """Parts that choose among what is offered get what they take of it alone."""
    part = part_of(f"def Mine({arguments}):\n    return []\n")
    given = {} if offered else {"labels": [0], "num_devices": 1}
    with pytest.raises(ScenarioError) as caught:
        make_part(part, "data.partition.kind", {}, offered=offered, **given)
    assert str(caught.value).startswith("data.partition.options.")
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize(("key", "gets"), [("data.partition", "labels, "), ("topology", "num_d")])
def test_a_part_that_chooses_its_arguments_is_told_all_of_them(tmp_path, key, gets):
    (tmp_path / "mine.py").write_text("def deal(targets):\n    return []\n")
    override = f"{key}={{kind: {tmp_path / 'mine.py'}:deal}}"
    with pytest.raises(ScenarioError, match=rf"{key}\.options\.targets is missing; .* \({gets}"):
        prepare(load_scenario(QUICKSTART, (override,)))


def test_options_that_fit_are_passed_on_and_described():
    made = make_part(part_of(OPTIONS), "gossip.algorithm", {"fade": 1, "count": None, "names": [1]})
    assert (made.fade, made.names) == (1, [1]), "lists are not looked into"
    fade = options_of(type(made), ())["fade"]
    assert (fade.meaning, fade.is_required) == ("share that is left, in (0, 1].", True)
    assert fade.takes(fade.example)


@pytest.mark.parametrize(
    ("key", "page"),
    [
        ("gossip.algorithm", "own-algorithm"),
        ("gossip.compressor.kind", "own-algorithm"),
        ("training.optimizer.kind", "own-optimizer"),
        ("training.schedule.kind", "own-optimizer"),
        ("training.task", "own-task"),
        ("data.source", "own-dataset"),
    ],
)
def test_a_part_without_what_is_needed_is_refused(key, page):
    with pytest.raises(ScenarioError, match=rf"has no send_, absorb_; docs/{page}.md says what"):
        make_part(part_of(GOOD), key, {}, ("do", "send_", "absorb_"))
    assert (DOCS / f"{page}.md").is_file()


@pytest.mark.parametrize(
    ("source", "given", "said"),
    [
        (
            "class Mine:\n    def __init__(self): ...",
            {"path": "x"},
            "'path'; let its __init__ take path, or remove data.path",
        ),
        (
            "def Mine(num_classes): ...",
            {"input_shape": (3,), "num_classes": 2},
            "'input_shape'; let it take input_shape",
        ),
    ],
)
def test_an_argument_that_is_not_taken_is_refused_with_its_remedy(source, given, said):
    with pytest.raises(ScenarioError) as caught:
        make_part(part_of(source), "key", {}, **given)
    assert str(caught.value).endswith(said)


def test_the_best_guess_comes_first():
    assert did_you_mean("Cnn1D", ["nn", "Cnn1d"], "") == "did you mean Cnn1d?"
    assert did_you_mean("Cnn1", ["nn", "Cnn1d"], "") == "did you mean Cnn1d or nn?"


def test_a_module_that_failed_is_made_anew():
    failing = part_of("import nonsense_of_tests")
    for _ in range(2):
        with pytest.raises(ScenarioError, match="ModuleNotFoundError"):
            load_part(failing, "key")
    assert f"edgesim_own_{failing.digest}" not in sys.modules


def test_another_version_of_a_package_is_refused():
    digest = package_digest("json")
    assert load_part(OwnPart("json.decoder", "JSONDecoder", None, digest), "key")
    with pytest.raises(ScenarioError, match=r"key: the package of json.decoder differs here"):
        load_part(OwnPart("json.decoder", "JSONDecoder", None, "other"), "key")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `edited` whose part computes with a helper; returns a function that loads it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "edited"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "helper.py").write_text("size = 1\n")
    (folder / "parts.py").write_text("from edited import helper\ndef size(): return helper.size\n")
    monkeypatch.syspath_prepend(tmp_path)

    def load():
        part = OwnPart("edited.parts", "size", None, package_digest("edited"))
        return load_part(part, "model.name")()

    yield folder, load
    for name in [name for name in sys.modules if name.partition(".")[0] == "edited"]:
        del sys.modules[name]
        own_parts._IMPORTED.pop(name, None)


def test_a_package_that_was_edited_after_its_import_is_refused_until_it_is_reloaded(package):
    """Otherwise the old code would train under the digest of the new one."""
    folder, load = package
    assert load() == load() == 1
    (folder / "helper.py").write_text("size = 22\n")
    for _ in range(2):
        with pytest.raises(ScenarioError, match=r"model.name: edited.helper has changed since"):
            load()
    importlib.reload(sys.modules["edited.parts"])  # takes the old helper
    with pytest.raises(ScenarioError, match=r"edited.helper has changed .* importlib.reload"):
        load()
    importlib.reload(sys.modules["edited.helper"])
    assert load() == 22
    (folder / "helper.py").write_text("size = 1\n")
    with pytest.raises(ScenarioError, match=r"edited.helper has changed since this process import"):
        load()


def test_a_file_that_is_gone_is_told(package):
    folder, load = package
    assert load() == 1
    (folder / "helper.py").unlink()
    with pytest.raises(ScenarioError, match=r"edited.helper can't be read any more"):
        load()


def test_an_edit_between_import_and_first_use_is_seen(package):
    """By what Python notes of the file when it compiles it."""
    folder, load = package
    importlib.import_module("edited.parts")
    (folder / "helper.py").write_text("size = 22\n")
    with pytest.raises(ScenarioError, match=r"edited.helper has changed since this process import"):
        load()
    importlib.reload(sys.modules["edited.helper"])
    assert load() == 22


def test_arguments_that_a_part_does_not_take_have_a_remedy_where_that_is_the_fault():
    made = partial(call, said="key: part", arguments={"path": "x"})
    with pytest.raises(ScenarioError, match=r"let it take path, or remove data.path"):
        made(lambda: None)
    for make in (lambda other, **_more: other, lambda other: other):
        with pytest.raises(ScenarioError, match=r"missing a required argument: 'other'$"):
            made(make)
