"""How long commands take to start, beside what nobody can do without: torch, and a bare Ray.

    python benchmarks/start.py                # commands, of `import torch`
    python benchmarks/start.py --ray          # also a run with its own Ray, of a bare Ray
    python benchmarks/start.py --tree FOLDER  # also the same of another checkout, in the same turns

All have the machine in turns, one after the other. Printed for each: the least processor time of a
process and its children, the least wall time, and the medians of the ratios of both to the
reference of the same turn.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

HERE = Path(__file__).resolve().parent.parent
SCENARIO = "scenarios/quickstart.yaml"
RUN = ("run", SCENARIO, "--set", "training.epochs=1", "--out", "{out}")
COMMANDS = (("--help",), ("list", "models"), ("validate", "quickstart"), (*RUN, "--inline"))
BARE_RAY = """
import ray
ray.init(num_cpus=2, logging_level="WARNING")

@ray.remote
class Actor:
    def answer(self):
        return 1

assert ray.get(Actor.remote().answer.remote()) == 1
ray.shutdown()
"""


@dataclass
class Contestant:
    """A program that is measured.

    Attributes:
        name: what is printed.
        arguments: of Python.
        tree: checkout that it runs in.
        reference: name of what it is compared with.
        cpu_s: processor times so far, of the process and of the children that it waited for.
        wall_s: wall times so far.
    """

    name: str
    arguments: tuple[str, ...]
    tree: Path
    reference: str
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Run it once."""
        environment = {**os.environ, "PYTHONPATH": str(self.tree), "OMP_NUM_THREADS": "1"}
        environment["RAY_USAGE_STATS_ENABLED"] = "0"
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiled modules are kept
        with tempfile.TemporaryDirectory() as folder:
            arguments = [word.format(out=f"{folder}/run") for word in self.arguments]
            before, start = _cpu_of_children_s(), perf_counter()
            subprocess.run(
                [sys.executable, *arguments],
                env=environment,
                cwd=self.tree,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.wall_s.append(perf_counter() - start)
            self.cpu_s.append(_cpu_of_children_s() - before)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def contestants(trees: list[Path], *, with_ray: bool) -> list[Contestant]:
    """References first, then each command in each checkout."""
    found = [Contestant("import torch", ("-c", "import torch"), HERE, "import torch")]
    if with_ray:
        found.append(Contestant("bare Ray", ("-c", BARE_RAY), HERE, "bare Ray"))
    for command in (*COMMANDS, *((RUN,) if with_ray else ())):
        reference = "bare Ray" if command == RUN else "import torch"
        for number, tree in enumerate(trees):
            words = " ".join(word for word in command if word not in ("--out", "{out}"))
            name = words + (" (other tree)" if number else "")
            found.append(Contestant(name, ("-m", "edgesim", *command), tree, reference))
    return found


def table(measured: list[Contestant]) -> list[str]:
    """Lines for people."""
    by_name = {each.name: each for each in measured}
    lines = [f"{'':70}  cpu s  wall s   of reference: cpu  wall"]
    for each in measured:
        reference = by_name[each.reference]
        cpu, wall = (
            median(own / of for own, of in zip(mine, theirs, strict=True))
            for mine, theirs in (
                (each.cpu_s, reference.cpu_s),
                (each.wall_s, reference.wall_s),
            )
        )
        lines.append(
            f"{each.name:70} {min(each.cpu_s):6.2f} {min(each.wall_s):7.2f} {cpu:19.2f} {wall:5.2f}"
        )
    return lines


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--ray", action="store_true", help="also a run with its own Ray")
    parser.add_argument("--tree", type=Path, help="another checkout, for before and after")
    options = parser.parse_args()
    trees = [HERE] if options.tree is None else [HERE, options.tree.resolve()]
    measured = contestants(trees, with_ray=options.ray)
    for each in measured:
        each.run()  # compiles modules and fills the file cache
        each.cpu_s.clear()
        each.wall_s.clear()
    for _ in range(options.turns):
        for each in measured:
            each.run()
    print("\n".join(table(measured)))


if __name__ == "__main__":
    main()
