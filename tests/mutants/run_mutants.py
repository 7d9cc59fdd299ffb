"""Changes the code a little, in thousands of ways, and says which changes no test notices.

    make mutants PATHS="topologies hardware"        all packages without PATHS; takes hours
    make mutants PATHS=data SAMPLE=100 SEED=3       of each package, that many drawn at random

mutmut makes the mutants and forks a process of pytest for each, which runs those tests of the
package's own folder that reach the changed function, and stops at the first failure. It works in a
copy, build/mutants/PACKAGE. Survivors are printed as `equivalent.toml` lists them: it argues why no
test can tell a mutant from the code. A survivor that is not argued there ends in exit status 1, and
so does a package of whose mutants fewer than 95 % were noticed.

mutmut changes bodies of functions and methods. It leaves alone what is decorated (properties,
compiled kernels), constants of modules and defaults of fields; and so does this, lines that raise
an error or write to the log: what these say is not what they compute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mutmut.stats import status_by_exit_code
from rich.console import Console

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
BAR = 0.95
NOTICED = ("killed", "timeout", "segfault")


@dataclass(frozen=True)
class Package:
    """What is changed and what must notice it; patterns of files and lines that are left alone."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    not_files: tuple[str, ...] = ()
    not_lines: tuple[str, ...] = ()
    not_tests: tuple[str, ...] = ()


PACKAGES = {
    "topologies": Package(("topologies/*",), ("tests/topologies",)),
    "hardware": Package(  # catalogs are tables, computed once, at import: before any mutant lives
        ("edgesim/hardware/*",), ("tests/hardware",), ("edgesim/hardware/catalog*",)
    ),
    "compression": Package(("edgesim/compression/*",), ("tests/compression",)),
    "gossip": Package(  # without whole fleets and long histories: the rest notices in a second
        ("edgesim/gossip/*",),
        (
            "tests/gossip/test_gossip_oracle.py",
            "tests/gossip/test_free_order_oracle.py",
            "tests/gossip/test_shares.py",
            *(
                f"tests/gossip/test_gossip_mass.py::test_{claim}"
                for claim in (
                    "choco_receivers_hold_bit_equal_public_copies",
                    "the_running_sum_of_choco_is_the_weighted_sum_of_the_senders_copies",
                    "push_weights_stay_one_on_regular_graphs_and_always_sum_to_the_devices",
                    "a_device_without_active_edges_sends_nothing_and_keeps_its_state",
                )
            ),
            *(
                f"tests/gossip/test_choco_forms.py::test_{claim}"
                for claim in (
                    "on_an_irregular_digraph_the_forms_differ_until_push_weights_settle",
                    "a_device_that_gives_without_receiving_keeps_its_model",
                    "a_device_without_mass_sends_the_zero_vector",
                    "float32_follows_float64_where_nothing_is_selected",
                )
            ),
        ),
    ),
    "costs": Package(  # without the memory of every model, and without fleets
        ("edgesim/costs/*",),
        (
            "tests/costs/test_closed_form.py",
            "tests/costs/test_layer_memory.py",
            "tests/costs/test_round_work.py",
            "tests/costs/test_work_meter.py",
            *(
                f"tests/costs/test_memory.py::test_{claim}"
                for claim in (
                    "predicted_memory_is_measured_with_every_norm",
                    "predicted_memory_is_measured_for_every_switch",
                    "predicted_memory_is_measured_for_every_algorithm_and_compressor",
                    "large_models_on_few_samples_peak_where_the_model_is_copied",
                    "quasi_global_momentum_holds_the_half_step_while_it_sends",
                    "the_papers_convention_gives_its_ratio",
                    "vectors_of_a_device_are_those_by_hand",
                    "statistics_of_batch_norm_are_held_twice_and_counters_of_batches_once",
                    "a_linear_classifier_peaks_at_its_weight_gradient",
                    "a_wide_head_does_not_find_the_copy_of_the_images_any_more",
                    "gradients_of_both_branches_wait_where_they_were_added",
                    "watching_leaves_the_step_and_the_model_as_they_are",
                    "a_layout_of_another_model_is_refused",
                )
            ),
        ),
    ),
    "data": Package(("edgesim/data/*",), ("tests/data",)),
    "quant": Package(
        tuple(
            f"edgesim/quant/{name}.py"
            for name in (
                "affine",
                "autograd",
                "layers",
                "norms",
                "rounding_noise",
                "settings",
                "site",
            )
        ),
        tuple(  # without the kernels, which mutmut can't change
            f"tests/quant/test_{name}.py"
            for name in ("affine", "noise", "not_finite", "quantized_layers", "range_norms")
        ),
    ),
    "fleet": Package(
        tuple(
            f"edgesim/{name}.py"
            for name in (
                "fleet/on_ray/core_pool",
                "fleet/on_ray/placement",
                "fleet/recording/evaluation",
                "fleet/recording/monitor",
                "fleet/recording/watchdog",
                "fleet/recovery/checkpoints",
                "fleet/recovery/completeness",
                "fleet/recovery/message_log",
                "fleet/transport/mailbox",
                "fleet/transport/time_bounds",
                "results/part_merge",
            )
        ),
        (
            "tests/fleet/test_checkpoints.py",
            "tests/fleet/test_cluster.py",
            *(
                f"tests/fleet/test_completeness.py::test_{claim}"
                for claim in (
                    "each_round_must_be_there_once",
                    "a_device_without_any_row_is_not_forgotten",
                    "rounds_in_which_a_device_was_away_may_be_missing",
                    "each_message_must_be_there_once",
                    "the_table_that_lacks_something_is_named",
                    "each_evaluation_must_be_there_once",
                    "what_a_finished_run_lacks_or_has_damaged_is_named",
                )
            ),
            "tests/fleet/test_core_pool.py",
            "tests/fleet/test_evaluation.py",
            *(
                f"tests/fleet/test_evaluated_devices.py::test_{claim}"
                for claim in (
                    "the_sample_follows_from_the_seed_and_grows_at_its_end",
                    "only_the_sample_is_evaluated_and_only_it_costs_anything",
                    "others_take_the_place_of_devices_that_have_left",
                    "rows_say_whose_model_it_is_and_how_far_it_is_from_the_average",
                    "every_batch_of_every_model_is_rounded_with_noise_of_its_own",
                )
            ),
            "tests/fleet/test_mailbox.py",
            "tests/fleet/test_time_bounds.py",
            "tests/fleet/test_monitor.py",
            "tests/fleet/test_message_log.py",
            "tests/fleet/test_watchdog.py",
            "tests/storage/test_loading_runs.py",
            "tests/storage/test_run_directory.py",
            "tests/storage/test_run_parts.py",
        ),
    ),
    "report": Package(  # what is computed, and when it is said; not words, looks and drawings
        ("edgesim/report/*",),
        ("tests/report",),
        tuple(
            f"edgesim/report/{name}.py"
            for name in (
                "figures/graph_figure",
                "figures/layout",
                "libraries",
                "page",
                "provenance",
                "report",
            )
        ),
        (
            r"\balt\.",
            r"\.(encode|mark_\w+|properties|transform_\w+)\(",
            r'^\s*(\w+=)?"[^"]* [^"]*"',
        ),
        (  # these take long, and see what faster ones see
            "tests/report/test_graph_figure.py",
            "tests/report/test_layout.py",
            "tests/report/test_libraries.py",
            "tests/report/test_provenance.py",
            "tests/report/test_report_in_browser.py",
            *(
                f"tests/report/{name}"
                for name in (
                    "test_comparison.py::test_many_runs_have_a_row_each",
                    "test_comparison.py::test_the_gate_that_follows_from_the_precision_is_shown",
                    "test_reaching.py::test_a_page_has_the_table_and_the_command_prints_it",
                    "test_report_data.py::test_a_report_lies_in_its_run_and_may_be_written_again",
                    "test_report_data.py::test_every_drawing_is_sound",
                    "test_report_input.py::test_code_that_a_run_directory_names_is_not_run",
                    "test_report_input.py::test_the_command_says_where_the_page_is",
                )
            ),
        ),
    ),
}

SETTINGS = """
[tool.mutmut]
source_paths = ["edgesim", "topologies"]
only_mutate = {files}
do_not_mutate = {not_files}
also_copy = ["benchmarks", "deploy", "docs", "scenarios", "README.md", "Makefile"]
do_not_mutate_patterns = {not_lines}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {options}
timeout_constant = 10.0
timeout_multiplier = 6.0
use_git_change_detection = false
"""
NOT_LINES = (r"\braise\b", r"\b_log\.", r"\bassert(_never)?\b")
OPTIONS = ("-p", "no:cacheprovider", "-m", "not ray", "--hypothesis-profile=mutants", "--timeout=0")
# Names of places to change are those of `git ls-files`, so that nothing else is copied.
COPIED = ("edgesim", "topologies", "tests", "benchmarks", "deploy", "docs", "scenarios")


class Change(NamedTuple):
    """A mutant as people read it: where, and the lines that go and come."""

    function: str
    removed: str
    added: str


def prepare(name: str, package: Package, *, anew: bool) -> Path:
    """A copy of the tree with mutmut's settings; files that did not change keep their times."""
    folder = FOLDER / name
    if anew:
        shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    files = {file for file in listed if file.split("/")[0] in COPIED and (ROOT / file).is_file()}
    for old in [path for top in COPIED for path in (folder / top).rglob("*") if path.is_file()]:
        relative = str(old.relative_to(folder))
        if relative not in files:
            old.unlink()
            (folder / "mutants" / relative).unlink(missing_ok=True)
    for file in (*files, "README.md", "Makefile"):
        target = folder / file
        if not target.exists() or target.read_bytes() != (ROOT / file).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, target)
    settings = SETTINGS.format(
        files=list(package.files),
        not_files=list(package.not_files),
        tests=list(package.tests),
        not_lines=json.dumps([*NOT_LINES, *package.not_lines]),
        options=[*OPTIONS, *(f"--deselect={name}" for name in package.not_tests)],
    )
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
    return folder


def mutmut(folder: Path, *arguments: str, check: bool = True) -> str:
    """Run it there; returns what it said."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(f"{' '.join(command[:2])} failed in {folder}:\n{done.stdout[-4000:]}{done.stderr}")
    return done.stdout


def statuses(folder: Path) -> dict[str, str]:
    """What became of each mutant, by its name."""
    found = {}
    for file in sorted((folder / "mutants").rglob("*.meta")):
        codes = json.loads(file.read_text())["exit_code_by_key"]
        found |= {name: status_by_exit_code[code] for name, code in codes.items()}
    return found


def describe(folder: Path, names: Sequence[str]) -> list[Change]:
    """The lines of mutants that differ, by mutmut in a process of its own that begins there."""
    code = (
        "import json, sys; from mutmut.mutation.diff_apply import get_diff_for_mutant as diff; "
        "print(json.dumps([diff(name) for name in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        input=json.dumps(names),
        check=True,
        capture_output=True,
        text=True,
    )
    diffs = json.loads(done.stdout)
    return [_change(name, diff) for name, diff in zip(names, diffs, strict=True)]


def _change(name: str, diff: str) -> Change:
    body = [line for line in diff.splitlines() if line[:3] not in ("---", "+++", "@@ ")]
    removed, added = (
        "\n".join(line[1:].strip() for line in body if line.startswith(sign)) for sign in "-+"
    )
    function = name.rpartition("__mutmut_")[0].replace(".xǁ", ".").replace("ǁ", ".")
    return Change(function.replace(".x_", "."), removed, added)


def argued() -> dict[Change, str]:
    """Why mutants are equivalent to the code."""
    return {
        Change(*(words.strip() for words in mutant)): group["why"]
        for group in tomllib.loads(EQUIVALENT.read_text()).get("group", [])
        for mutant in group["mutants"]
    }


def test(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Run tests against mutants; returns those that were meant, noticed long ago or now."""
    command = "run", "--max-children", str(arguments.jobs)
    if arguments.sample:
        mutmut(folder, *command, "none of them", check=False)  # makes them, and tests none
        made = statuses(folder)
        meant = random.Random(arguments.seed).sample(sorted(made), min(arguments.sample, len(made)))
        if names := [name for name in meant if made[name] not in NOTICED]:
            mutmut(folder, *command, *names)
        return meant
    survivors = [
        name for name, status in statuses(folder).items() if status not in (*NOTICED, "not checked")
    ]
    if survivors:  # tests may have changed, which mutmut does not ask
        mutmut(folder, *command, *survivors, check=False)
    mutmut(folder, *command)
    return list(statuses(folder))


def run(name: str, arguments: argparse.Namespace, console: Console) -> tuple[Counter[str], int]:
    """Test a package; returns what became of its mutants, and how many there are in all."""
    folder = prepare(name, PACKAGES[name], anew=not arguments.again)
    meant = test(folder, arguments)
    after, reasons = statuses(folder), argued()
    count = Counter(after[mutant] for mutant in meant)
    unnoticed = [mutant for mutant in meant if after[mutant] not in NOTICED]
    for mutant, change in zip(unnoticed, describe(folder, unnoticed), strict=True):
        if change in reasons:
            count[after[mutant]] -= 1
            count["equivalent"] += 1
        else:
            console.print(f"# {after[mutant]}: {mutant}", markup=False, highlight=False)
            console.print(as_toml(change), markup=False, highlight=False, soft_wrap=True)
    return count, len(after)


def as_toml(change: Change) -> str:
    """An entry of `equivalent.toml`."""
    return "[" + ", ".join(f"'''{part}'''" for part in change) + "],"


def main() -> None:
    """Exit status 1 if a survivor is not argued or a package is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}")
    parser.add_argument("--sample", type=int, help="mutants of a package, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of that draw")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--again", action="store_true", help="test those alone that survived")
    arguments = parser.parse_args()
    if unknown := set(arguments.packages) - set(PACKAGES):
        parser.error(f"no such package: {', '.join(sorted(unknown))}")
    console = Console()
    columns = ("made", "tested", *NOTICED, "survived", "equivalent", "noticed of the others")
    table = [("package", *columns), ("---",) * (1 + len(columns))]
    is_good = True
    for name in arguments.packages or PACKAGES:
        count, made = run(name, arguments, console)
        tested, noticed = sum(count.values()), sum(count[status] for status in NOTICED)
        survived = tested - noticed - count["equivalent"]
        share = noticed / max(noticed + survived, 1)
        is_good &= share >= BAR and not survived
        figures = [made, tested, *(count[s] for s in NOTICED), survived, count["equivalent"]]
        table.append((name, *map(str, figures), f"{share:.1%}"))
    for row in table:
        console.print("| " + " | ".join(row) + " |", markup=False, highlight=False, soft_wrap=True)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
