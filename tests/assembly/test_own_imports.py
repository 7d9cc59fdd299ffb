"""A run is what its digest says: own code is in own files and in installed packages alone."""

import os
import sys
from zipfile import ZipFile

import pytest

import edgesim
from edgesim.assembly.parts.own_imports import _loose, check_imports, imported
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario

MODEL = """
{imports}
from torch import nn

def net(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], num_classes))
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder that a script has put on its path; returns a function that names a model in it."""
    folder = tmp_path / "beside"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    loaded = set(sys.modules)

    def model(imports):
        (folder / "net.py").write_text(MODEL.format(imports=imports))
        return load_scenario("quickstart", [f"model={{name: {folder}/net.py:net}}"])

    yield folder, model
    for name in set(sys.modules) - loaded:
        if name.startswith("loose"):
            del sys.modules[name]


def write(folder):
    (folder / "loose.py").write_text("FACTOR = 0.9\n")


@pytest.mark.parametrize(
    "imports",
    [
        "import loose",
        "import json, loose as other",
        "from loose import FACTOR",
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    import loose",
        "import typing\nif typing.TYPE_CHECKING:\n    import a\nelse:\n    import loose",
        "def late():\n    from loose import FACTOR",
        "try:\n    import loose\nexcept ImportError:\n    pass",
    ],
)
def test_a_file_beside_an_own_file_is_refused(beside, imports):
    folder, model = beside
    write(folder)
    said = (
        f"model.name: {folder}/net.py imports loose from {folder}/loose.py, which is not installed"
        "; a file may import installed packages alone, no file beside it"
    )
    with pytest.raises(ScenarioError) as caught:
        check_imports(model(imports))
    assert str(caught.value) == said


def test_a_file_that_the_script_has_imported_is_refused(beside):
    folder, model = beside
    write(folder)
    __import__("loose")
    with pytest.raises(ScenarioError, match=r"imports loose from .*, which is not installed"):
        check_imports(model("import loose"))
    sys.modules["loose"].__spec__ = None
    with pytest.raises(ScenarioError, match=r"imports loose from .*, which is not installed"):
        check_imports(model("import loose"))


@pytest.mark.parametrize(
    "imports",
    [
        "import json, os.path, collections.abc, _struct",
        "import numpy, torch.nn.functional, yaml",
        "import edgesim.compression, topologies",
        "from . import loose",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import loose",
        "import typing\nif typing.TYPE_CHECKING:\n    from loose import FACTOR",
        "try:\n    import loose_that_is_nowhere\nexcept ImportError:\n    pass",
        "x = (",
    ],
)
def test_what_every_process_finds_is_not(beside, imports):
    folder, model = beside
    write(folder)
    assert check_imports(model(imports)) == []


def test_what_the_script_defines_is_refused(beside):
    _, model = beside
    with pytest.raises(ScenarioError, match="imports __main__, which each process has another of"):
        check_imports(model("from __main__ import FACTOR"))


@pytest.mark.parametrize("form", ["file", "package", "namespace", "zip"])
def test_what_pythonpath_names_is_said_and_not_refused(beside, tmp_path, monkeypatch, form):
    _, model = beside
    place = tmp_path / "named"
    (place / "loose").mkdir(parents=True)
    if form == "zip":
        place = tmp_path / "named.zip"
        with ZipFile(place, "w") as file:
            file.writestr("loose.py", "")
    elif form == "file":
        (place / "loose").rmdir()
        write(place)
    else:
        write(place / "loose")
    if form == "package":
        (place / "loose" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(place)
    with pytest.raises(ScenarioError, match="imports loose from "):
        check_imports(model("import loose"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(place)]))
    (said,) = check_imports(model("import loose"))
    assert said.startswith(f"model.name: {tmp_path}/beside/net.py imports loose from {place}")
    assert said.endswith("is in PYTHONPATH: a run's digest does not cover it")


def test_a_module_of_the_same_name_as_an_installed_one_is_refused(beside):
    """Python gives the one that the script's path has first."""
    folder, model = beside
    (folder / "this.py").write_text("")
    sys.modules.pop("this", None)
    with pytest.raises(ScenarioError, match=rf"imports this from {folder}/this.py"):
        check_imports(model("import this"))


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("loose:net", "install it, or name the file: {folder}/loose.py:net"),
        ("loose_package.parts:net", "install it"),
    ],
)
def test_a_package_that_a_script_alone_finds_is_not_installed(beside, reference, said):
    folder, _ = beside
    write(folder)
    (folder / "loose_package").mkdir()
    (folder / "loose_package" / "__init__.py").write_text("")
    scenario = load_scenario("quickstart", [f"model={{name: '{reference}'}}"])
    package = reference.partition(":")[0].partition(".")[0]
    with pytest.raises(ScenarioError) as caught:
        check_imports(scenario)
    text = str(caught.value)
    assert text.startswith(f"model.name names the package {package}, which is not installed: ")
    assert text.endswith(f"; {said.format(folder=folder)}")


def test_a_python_that_can_not_be_asked_refuses_nothing(beside, monkeypatch):
    folder, model = beside
    write(folder)
    scenario = model("import loose")
    for executable in (None, "", "/bin/false", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", executable)
        assert check_imports(scenario) == []


def test_validate_and_cost_look_for_it_and_see_what_the_code_does_to_the_path(beside):
    folder, model = beside
    scenario = model("import loose")
    write(folder)
    for look in (edgesim.validate, edgesim.cost):
        with pytest.raises(ScenarioError, match="imports loose from "):
            look(scenario)
    sys.path.remove(str(folder))
    scenario = model(f"import sys\nsys.path.append({str(folder)!r})\nimport loose")
    with pytest.raises(ScenarioError, match="imports loose from "):
        edgesim.validate(scenario)


@pytest.mark.parametrize(
    "source",
    [
        'if __name__ == "__main__":\n    import loose',
        'if "__main__" == __name__:\n    from loose import FACTOR',
        "import typing as t\nif t.TYPE_CHECKING:\n    import loose",
    ],
)
def test_what_only_a_script_or_a_type_checker_imports_is_not_looked_for(source):
    assert "loose" not in imported(source)


@pytest.mark.parametrize(
    "source",
    [
        'if __name__ != "__main__":\n    import loose',
        "import typing as t\nif x.y or t.TYPE_CHECKING:\n    import loose",
    ],
)
def test_what_others_import_is(source):
    assert "loose" in imported(source)


def test_a_python_that_prints_at_its_start_is_asked_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    (tmp_path / "helper.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert _loose({"helper": str(tmp_path / "helper.py"), "loose": "/nowhere/loose.py"}) == {
        "loose": "/nowhere/loose.py"
    }
