"""Pages of the reference that are made from the code: keys, parts, columns, commands, Python."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from inspect import getsource
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import get_args

import typer
from typer.core import TyperCommand, TyperGroup

import edgesim
from edgesim.cli import app
from edgesim.cli.catalog_names import What
from edgesim.cli.listing import catalog_table
from edgesim.results import columns
from edgesim.results.metrics import DEVICE_METRICS, EVALUATION_METRICS, WAITS_FOR
from edgesim.scenario.guide import KeyGuide, guide
from edgesim.scenario.json_schema import scenario_json_schema
from edgesim.scenario.plain import in_yaml
from edgesim.scenario.sweep import sweep_guide
from edgesim.study.tables.table import Table

_PARTS = [what for what in get_args(What) if what not in ("keys", "schema", "columns")]
_FORMULAS = "Formulas of the paper and its code <../reference>"
_TABLES = ("rounds", "messages", "evaluations", "devices")
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_LANGUAGES = {".py": "python", ".yaml": "yaml"}
_MEANINGS = {  # of sections without a key or a class of their own
    "gossip": "algorithm and compressor, and how often devices exchange messages",
    "sweep": "one scenario with many settings",
    "topology": "who sends to whom, and with which weights",
}
_IMPLEMENTED = {
    "edgesim.gossip.algorithm": ("Algorithm", "GossipState", "OutEdge", "Share", "Buffers"),
    "edgesim.learning.parameters": ("ParameterLayout",),
    "edgesim.compression.compressors": ("Compressor",),
    "edgesim.compression.payload": ("Payload",),
    "edgesim.learning.optimizers": ("Optimizer", "LearningRates"),
    "edgesim.learning.tasks": ("Task", "Targets"),
    "edgesim.fleet.recording.fleet_state": ("FleetState", "FleetFacts"),
}
"""What one's own parts implement: names by module."""


def write_pages(folder: Path) -> None:
    """Write all pages anew, and the JSON schema beside them."""
    texts = dict(pages())
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in texts.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "scenario.schema.json").write_text(json.dumps(scenario_json_schema()))


def pages() -> Iterator[tuple[str, str]]:
    """Names of all pages, without .md, each with its text."""
    yield "reference", _reference()
    sections = [(name, list(keys)) for name, keys in groupby(guide(), lambda e: _first(e.key))]
    sections.append(("sweep", sweep_guide()))
    yield "keys", _keys(sections)
    for name, entries in sections:
        if len(entries) > 1:
            yield f"keys/{name}", _section(name, entries)
    yield "parts", _parts()
    for what in _PARTS:
        yield f"parts/{what}", _catalog(what)
    yield "columns", _columns()
    yield "commands", _commands()
    yield "python", _python()
    yield "protocols", _protocols()
    yield "examples", _examples()


def _first(key: str) -> str:
    return key.partition(".")[0]


def _reference() -> str:
    pages = {
        "keys": "every key of a scenario: meaning, range, default, example",
        "../editors": "a JSON schema of scenarios, for editors",
        "parts": "every name that a scenario can use: topologies, algorithms, devices, ...",
        "../runs": "commands, checks, what a run leaves",
        "commands": "every command and its options",
        "columns": "every column of a run's tables, with its unit; live metrics",
        "python": "functions and classes of `import edgesim`",
        "protocols": "what parts of your own implement",
        "examples": "files with parts of your own, whole",
        "../glossary": "terms",
    }
    rows = [f"- {{doc}}`{page}`: {meaning}" for page, meaning in pages.items()]
    rows.append(f"- {{doc}}`{_FORMULAS}`, their constants and known mistakes")
    return _page("Reference", "\n".join(rows), _toctree([*pages, _FORMULAS]))


def _keys(sections: list[tuple[str, list[KeyGuide]]]) -> str:
    """The keys at the top, and a page for each section."""
    intro = (
        "A scenario is a YAML file with these keys. `edgesim list keys KEY` says the same on the "
        "command line. In the name of a key, `0` is the position of an item of a list, from 0."
    )
    plain = [_key(entries, "###") for name, entries in sections if len(entries) == 1]
    needed = [e[0].key for _, e in sections[:-1] if e[0].default is None]
    inner = {name: entries for name, entries in sections if len(entries) > 1}
    lines = [f"- {{doc}}`keys/{name}`: {md(_meaning_of(name, e))}" for name, e in inner.items()]
    said = f"Every scenario has {', '.join(f'`{key}`' for key in needed)}."
    return _page(
        "Keys of a scenario",
        intro,
        said,
        "## Sections",
        "\n".join(lines),
        "## Keys at the top",
        *plain,
        _toctree(f"keys/{name}" for name in inner),
    )


def _meaning_of(name: str, entries: list[KeyGuide]) -> str:
    return _MEANINGS.get(name, entries[0].meaning)


def _section(name: str, entries: list[KeyGuide]) -> str:
    inside = [entry for entry in entries if entry.key != name]
    parts = [_key(list(same)) for _, same in groupby(_sorted(inside), lambda entry: entry.key)]
    about = "More: {doc}`/sweeps`." if name == "sweep" else ""
    return _page(name, f"{_capital(md(_meaning_of(name, entries)))}.", about, *parts)


def _sorted(entries: list[KeyGuide]) -> list[KeyGuide]:
    """Entries of the same key side by side, at the place of the first one."""
    first = {entry.key: place for place, entry in reversed(list(enumerate(entries)))}
    return sorted(entries, key=lambda entry: first[entry.key])


def _key(entries: list[KeyGuide], level: str = "##") -> str:
    """A key, with a list for each of the kinds under which it differs."""
    lines = [f"{level} {entries[0].key}", ""]
    told = ""
    for entry in entries:
        if entry.meaning != told:
            lines += [f"{_capital(md(entry.meaning))}.", ""]
        else:
            lines += ["Or:", ""]
        told = entry.meaning
        lines.append(f"- must be {md(entry.must_be)}")
        lines.append("- required" if entry.default is None else f"- default `{entry.default}`")
        lines.append(f"- for example `{_last(entry.key)}: {in_yaml(entry.example)}`")
        if entry.condition:
            lines.append(f"- only with {md(entry.condition)}")
        lines.append("")
    return "\n".join(lines)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _parts() -> str:
    lines = [f"- {{doc}}`parts/{what}`" for what in _PARTS]
    intro = "The names that scenarios can use. `edgesim list` prints the same tables."
    return _page("Names of parts", intro, "\n".join(lines), _toctree(f"parts/{w}" for w in _PARTS))


def _catalog(what: What) -> str:
    whole = catalog_table(what, None)
    parts = [_table(whole)]
    for name, *_ in whole.rows if what != "scenarios" else ():
        table = catalog_table(what, name)
        title = table.title.removeprefix(f"{name}: ")
        about = "" if title == name else f"{_capital(md(title))}."
        parts += [f"## {name}", about, _table(Table("", table.columns, table.rows, table.notes))]
    return _page(_capital(what), *parts)


def _columns() -> str:
    """Groups of columns, each with the docstring below it in `columns.py`."""
    parts = [
        "`edgesim.load_run` reads the tables with pandas; fields of the files have their meanings."
    ]
    told = dict(_documented(columns))
    for file in _TABLES:
        parts.append(f"## {file}.parquet")
        for name, about in told.items():
            if name.endswith(file.upper()) and not name.startswith("LIVE"):
                parts += [md(about), _column_rows(getattr(columns, name))]
    parts += [
        "## Sums that edgesim.load_run adds",
        md(told["TOTALS"]),
        _column_rows(columns.TOTALS),
    ]
    parts += ["## Names", "Where devices have names, a column with the name follows each number."]
    parts.append(_column_rows(columns.NAMED.values()))
    parts += [
        "## Live metrics",
        "Metrics of a run that goes on; {doc}`/monitoring` says where they are seen.",
    ]
    metrics = (*DEVICE_METRICS, WAITS_FOR, *EVALUATION_METRICS)
    rows = [(f"`{m.name}`", m.kind, ", ".join(m.labels), md(m.meaning)) for m in metrics]
    parts.append(_rows(("metric", "kind", "labels", "meaning"), rows))
    return _page("Columns of tables", *parts)


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Names of the groups of columns of a module, with their docstrings."""
    body = ast.parse(getsource(module)).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if name.isupper() and name[0] != "_":
                match following:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield name, text
                    case _:
                        yield name, ""


def _column_rows(group: Iterable[columns.Column]) -> str:
    rows = [(f"`{column.name}`", column.type, md(column.meaning)) for column in group]
    return _rows(("column", "type", "meaning"), rows)


def _commands() -> str:
    """What `--help` prints."""
    group = typer.main.get_command(app)
    parts = [_help(group, "edgesim")]
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        parts += [f"## edgesim {name}", _help(command, f"edgesim {name}")]
    return _page("Commands", *parts)


def _help(command: TyperCommand | TyperGroup, name: str) -> str:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=80)
    return f"```text\n{command.get_help(context)}\n```"


def _python() -> str:
    """All that `import edgesim` has, functions first."""
    parts = ["{doc}`/python` shows how they are used."]
    named = {name: getattr(edgesim, name) for name in edgesim.__all__}
    errors = [n for n, v in named.items() if isinstance(v, type) and issubclass(v, Exception)]
    classes = [n for n, v in named.items() if isinstance(v, type) and n not in errors]
    functions = [n for n in named if n not in (*errors, *classes)]
    parts.append("## Functions")
    parts += [_autodoc("autofunction", f"edgesim.{name}") for name in functions]
    parts.append("## Classes")
    parts += [_autodoc("autoclass", f"edgesim.{n}", *_members(named[n])) for n in classes]
    parts.append("## Errors and warnings")
    parts += [_autodoc("autoexception", f"edgesim.{name}") for name in errors]
    return _page("Python", *parts)


def _members(cls: type) -> tuple[str, ...]:
    """Options of autodoc; the fields of a scenario are keys, which have pages of their own."""
    return () if hasattr(cls, "model_fields") else (":members:",)


def _protocols() -> str:
    parts = [
        "What a class of your own has to have; {doc}`/own-parts` says how a scenario names it."
    ]
    for module, names in _IMPLEMENTED.items():
        parts += [_autodoc("autoclass", f"{module}.{name}", ":members:") for name in names]
    return _page("Protocols of own parts", *parts)


def _examples() -> str:
    """Each file of examples/, with a link to it."""
    intro = (
        "Each file is a whole part, with a scenario of the same name: `edgesim run adam.yaml`; "
        "`outside.py` is a program, of {doc}`/outside`."
    )
    parts = [intro]
    for path in sorted(_EXAMPLES.glob("*.*")):
        if path.suffix in _LANGUAGES:
            text = f"```{_LANGUAGES[path.suffix]}\n{path.read_text()}```"
            parts += [f"## {path.name}", f"[Save this file](../../examples/{path.name})", text]
    return _page("Examples", *parts)


def _autodoc(directive: str, name: str, *options: str) -> str:
    lines = [f".. {directive}:: {name}", *(f"   {option}" for option in options)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *filter(None, parts)]) + "\n"


def _toctree(pages: Iterable[str]) -> str:
    return "```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```"


def _table(table: Table) -> str:
    """A table of the command line; names and values as code, sentences as they are."""
    rows = []
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        rows.append(tuple(md(c) if n in _SENTENCES or not c else f"`{_cell(c)}`" for n, c in cells))
    notes = "\n".join(f"- {md(note)}" for note in table.notes)
    return "\n\n".join(filter(None, [_rows(table.columns, rows), notes]))


_SENTENCES = frozenset({"what it is", "source", "meaning", "must be", "only with", ""})


def _rows(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def md(text: str) -> str:
    """Text as Markdown that shows it, with `code` as code."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        _cell(piece) if piece.startswith("`") else re.sub(r"([\\*_<>|#~\[\]])", r"\\\1", piece)
        for piece in pieces
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".")
