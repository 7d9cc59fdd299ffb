"""What the command line prints can be copied: at any width, and through a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from edgesim.cli import main
from edgesim.cli.answers import number, result_table
from edgesim.cli.listing import catalog_table
from edgesim.code_version import code_version
from edgesim.data.published import PUBLISHED
from edgesim.hardware.catalog import PROFILES
from edgesim.study.tables.lines import LEAST_PROSE, show, table_lines
from edgesim.study.tables.table import Table

ROOT = Path(__file__).resolve().parents[2]
BOXES = re.compile("[\u2500-\u257f]")
PLACE = "/home/somebody/with a space/runs-of-this-year/quickstart-20261123-120000-again-and-again"
SUMMARY = {
    "name": "quickstart",
    "seed": 1,
    "devices": 1000,
    "averaging_rate": 0.2,
    "device_models_evaluated": 50,
    "consensus_accuracy": 0.98,
    "device_accuracy_min": 0.9,
    "device_accuracy_mean": 0.95,
    "device_accuracy_max": 0.99,
    "consensus_distance": 0.1,
    "sent_bytes": 123456789,
    "messages_sent": 12345,
    "sent_value_bytes": 100000000,
    "sent_index_bytes": 23000000,
    "sent_overhead_bytes": 456789,
    "rounds": 360,
    "epochs": 30.0,
    "virtual_time_s": 1234.5,
    **{f"energy_{kind}j": 1.5 for kind in ("", "compute_", "memory_", "radio_", "idle_")},
    "left_after_round": {str(device): 7 for device in range(9)},
    "warnings": ["the devices' models move apart: lower gossip.averaging_rate" + " still" * 30],
    "wall_s": 12.3,
}
# Each table, and words of it that somebody may copy.
TABLES = {
    "devices": (catalog_table("devices", None), list(PROFILES)),
    "a device": (catalog_table("devices", "raspberry-pi-4b"), ["6.4", "measured"]),
    "topologies": (catalog_table("topologies", None), ["one_peer_exponential", "random_matching"]),
    "algorithms": (catalog_table("algorithms", None), ["choco", "gradient_push"]),
    "a result": (result_table(SUMMARY, PLACE), [PLACE, "123,456,789 in 12,345 messages", "0.9500"]),
}


def printed(table, width=None):
    console = Console(
        file=StringIO(), force_terminal=width is not None, width=width or 80, color_system=None
    )
    show(table, console)
    return console.file.getvalue()


OWN = {
    "consensus_loss": 0.25,
    "consensus_own_loss": 0.5,
    "consensus_own_accuracy": 0.8,
    "device_own_accuracy_min": None,
    "device_own_loss_min": None,
    "after_gossip_rounds": 20,
    "after_gossip_accuracy": 0.97,
    "after_gossip_loss": 0.75,
}


def test_results_after_further_gossip_stand_with_those_on_the_common_samples():
    rows = result_table(SUMMARY | OWN, PLACE).rows
    place = rows.index(("  mean after 20 rounds of gossip", "0.9700"))
    assert rows[place - 1] == ("  mean", "0.9500")
    assert rows[place + 1][0] == "accuracy on devices' own samples"


def test_a_task_without_accuracy_has_the_loss_after_further_gossip():
    without = dict.fromkeys(
        ("consensus_accuracy", "device_accuracy_min", "consensus_own_accuracy"), None
    )
    summary = SUMMARY | OWN | without | {"after_gossip_accuracy": None}
    rows = result_table(summary, PLACE).rows
    assert rows[0] == ("loss of the averaged model", "0.25")
    assert rows[1] == ("loss of devices after 20 rounds of gossip, mean", "0.75")


@pytest.mark.parametrize("width", [80, 40, 20])
@pytest.mark.parametrize(("table", "wanted"), TABLES.values(), ids=TABLES)
def test_a_terminal_gets_every_cell_whole_and_every_sentence_in_whole_words(table, wanted, width):
    lines = printed(table, width).splitlines()
    for text in wanted:
        assert any(text in line for line in lines), text
    words = set(" ".join(lines).split())
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if column in table.prose or row[0] in table.prose:
                assert set(cell.split()) <= words
            else:
                assert any(cell in line for line in lines), cell


@pytest.mark.parametrize(("table", "wanted"), TABLES.values(), ids=TABLES)
def test_a_pipe_gets_one_complete_line_a_row(table, wanted):
    lines = printed(table).splitlines()
    num_around = bool(table.title) + any(table.columns) + len(table.notes)
    assert len(lines) == num_around + len(table.rows)
    for row in table.rows:
        assert any(all(cell in line for cell in row) for line in lines), row
    assert not any(BOXES.search(line) for line in lines)
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.23456e-5, "1.235e-05"), (0.28371, "0.2837"), (99.987, "99.99"),
     (100.04, "100.0"), (9999.96, "10,000.0"), (1234567.8, "1,234,567.8")],
)  # fmt: skip
def test_times_and_energies_keep_four_digits_and_have_no_powers_of_ten_where_large(value, text):
    assert number(value) == text


def test_a_wide_terminal_gets_columns():
    table = Table("t", ("name", "what"), (("a", "one"), ("long-name", "two")))
    assert printed(table, 80).splitlines() == [
        "t",
        "name       what",
        "a          one",
        "long-name  two",
    ]


def test_sentences_are_broken_before_columns_are_given_up():
    sentence = "one two three four five six seven eight nine ten"
    table = Table("", ("name", "says", "n"), (("a", sentence, "1"), ("b", "", "2")), (), {"says"})
    assert table_lines(table, 40) == [
        "name  says                             n",
        "a     one two three four five six      1",
        "      seven eight nine ten",
        "b                                      2",
    ]
    assert table_lines(table, LEAST_PROSE) == [
        "a",
        "  says  one two three four five",
        "        six seven eight nine ten",
        "  n     1",
        "b",
        "  n     2",
    ]


WORDS = st.text(st.sampled_from("ab-/._é漢"), min_size=1, max_size=12)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


@given(
    st.lists(st.tuples(WORDS, CELLS, CELLS), min_size=1, max_size=5),
    st.sets(st.sampled_from(["second", "third"])),
    st.integers(1, 100),
)
def test_no_word_is_lost_broken_or_moved(rows, prose, width):
    """Read without line breaks, every row is there in its order."""
    table = Table("", ("first", "second", "third"), tuple(rows), (), frozenset(prose))
    lines = table_lines(table, width)
    for row in rows:
        for cell, column in zip(row, table.columns, strict=True):
            if column not in prose:
                assert any(cell in line for line in lines)
            assert {*cell.split()} <= {*" ".join(lines).split()}
    if any(cell_len(line) > width for line in lines):  # only for a word or a cell that can't fit
        longest = max(cell_len(cell) for row in rows for cell in row)
        assert longest + LEAST_PROSE >= width or longest > LEAST_PROSE


def edgesim(*words, columns=None, **options):
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    if columns is not None:
        environment["COLUMNS"] = str(columns)
    return subprocess.run(
        [sys.executable, "-m", "edgesim", *words],
        env=environment,
        check=True,
        timeout=240,
        **options,
    )


def through_a_terminal(*words, columns):
    """What a terminal of that width gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    received = b""
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgesim", *words],
            stdout=theirs,
            stderr=theirs,
            env={k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"},
        )
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            received += part
        assert process.wait(timeout=240) == 0
    finally:
        os.close(ours)
    text = received.decode().replace("\r\n", "\n")
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.skipif(shutil.which("grep") is None, reason="needs grep")
def test_grep_finds_the_devices_whatever_the_width():
    for columns in (None, 40):
        listed = edgesim("list", "devices", columns=columns, capture_output=True).stdout
        found = subprocess.run(
            ["grep", "-c", "raspberry-pi"], input=listed, capture_output=True, check=True
        )
        wanted = sum("raspberry-pi" in name for name in PROFILES)
        assert int(found.stdout) == wanted == 3


def test_a_real_terminal_gets_names_and_paths_whole(tmp_path):
    """A narrow one; other widths are those of `test_a_terminal_gets_every_cell_whole`."""
    listed = through_a_terminal("list", "devices", columns=40)
    assert all(re.search(rf"^{name}\b", listed, re.MULTILINE) for name in PROFILES)
    place = tmp_path / ("a-long-name-" * 8) / "run [of :fire: today]"
    place.parent.mkdir()
    closing = through_a_terminal(
        *("run", str(ROOT / "scenarios/quickstart.yaml"), "--inline", "--out", str(place)),
        *("--set", "training.rounds=2", "--set", "data.train_samples=80"),
        *("--set", "evaluation.samples=20"),
        columns=40,
    )
    assert str(place) in closing


@pytest.mark.parametrize(
    "words", [["list", "nothing"], ["run"], ["walk"], ["validate", "x.yaml", "--fast"]]
)
def test_a_usage_error_takes_two_lines(words, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["edgesim", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert len(said.err.splitlines()) == 2, said.err
    assert said.out == ""


def test_the_version_is_said(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["edgesim", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"{code_version()}\n"
    assert str(code_version()).startswith(f"edgesim {version('edgesim')} (")


def test_an_error_of_one_line_is_one_line():
    words = ["validate", "scenarios/quickstart.yaml", "--set", "seed=x"]
    done = subprocess.run(
        [sys.executable, "-m", "edgesim", *words], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [["list", "keys"], ["--help"], ["--version"]])
def test_output_that_cant_be_written_is_said_in_a_line(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgesim", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "can't write the answer: no space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("words", [["list", "keys"], ["--help"], ["--version"]])
def test_a_reader_that_has_seen_enough_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "edgesim", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""


def test_help_of_list_says_what_a_name_is(capsys, monkeypatch):
    assert "One entry or key, to be described" in help_of(capsys, monkeypatch, "list")


def help_of(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["edgesim", *words, "--help"])
    with pytest.raises(SystemExit):
        main()
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["dashboard", "report"])
def test_help_of_runs_writes_them_once(capsys, monkeypatch, command):
    usage = help_of(capsys, monkeypatch, command)
    assert "[[" not in usage
    assert "...}" not in usage


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("run", "--set"),
        ("report", "--accuracy"),
        ("sweep", "--only"),
        ("cost", "--compare-set"),
        ("cost", "--only"),
    ],
)
def test_help_says_which_options_may_be_repeated(capsys, monkeypatch, command, option):
    told = help_of(capsys, monkeypatch, command).partition(f" {option} ")[2].partition(" --")[0]
    assert "may be repeated" in told


def test_help_of_fetch_names_the_datasets_that_can_be_fetched(capsys, monkeypatch):
    told = help_of(capsys, monkeypatch, "data", "fetch").partition("NAME <")[2].partition("[")[0]
    fetched = {name for name, published in PUBLISHED.items() if not published.by_hand}
    assert set(re.findall(r"\w+", told)) & set(PUBLISHED) == fetched
