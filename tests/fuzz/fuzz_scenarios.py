"""Mutated scenarios: `edgesim validate` says yes, or no in one or two lines; never much work.

Some that are accepted and small are also run, cut to a few rounds: to the end, or to one or two
clear lines.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image
from scenario_mutations import mutated

from edgesim.cli import main
from edgesim.scenario import load_scenario
from edgesim.scenario.files import dump_scenario
from edgesim.scenario.schema import Scenario

NUM_IN_TESTS = 24
ROOT = Path(__file__).resolve().parents[2]
MOST_CPU_S = 10.0  # of this process: however busy the machine is
MOST_BYTES = 700 * 2**20  # that a check may add to the 300 MB of a process that has loaded torch
SHARE_RUN = 0.25  # of the accepted and small ones, which are half of those accepted
MOST_RUN_CPU_S = 120.0  # of a run: seconds of it can be the search for an averaging rate
LARGEST_RUN = 9  # devices


class TooMuchWorkError(BaseException):
    """A check takes too long; no Exception, which the command line would report as a defect."""


def check(seed):
    """Validate one scenario, mutated by the seed."""
    rng = random.Random(seed)
    text, overrides = mutated(rng.choice(_bases()), rng)
    path = _folder() / f"scenario-{os.getpid()}.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    words = ["validate", str(path)]
    for override in overrides:
        # As the system would hand it over: no zero bytes, surrogates for what is no text.
        words += ["--set", os.fsdecode(os.fsencode(_fit_for_arguments(override)))]
    try:
        _warm_up()
        with _limits():
            status, out, err = command_line(words)
        is_accepted = _check_answer(status, out, err)
        if is_accepted and rng.random() < SHARE_RUN:
            scenario = load_scenario(path, words[3::2])
            if _is_small(scenario):
                check_run(cut(scenario, rng))
    finally:
        path.unlink()


def _check_answer(status, out, err):
    """Whether a scenario was accepted; the answer is the right one of its kind."""
    assert "Traceback" not in err, err[-2000:]
    assert "internal error" not in err, err[-2000:]
    if status == 0:
        assert "valid, can be run" in out
        return True
    assert status == 2, (status, err[-2000:])
    _check_lines(err.splitlines())
    assert not out, out[-2000:]
    return False


def _check_lines(lines):
    """An error takes one or two lines."""
    assert 1 <= len(lines) <= 2, "\n".join(lines)[-2000:]
    assert all(line.strip() for line in lines), "\n".join(lines)[-2000:]


def _is_small(scenario):
    return scenario.fleet.num_devices <= LARGEST_RUN and scenario.model.name == "small_cnn"


def cut(scenario, rng):
    """The same scenario with few rounds, few samples to test with, and an evaluation between.

    Args:
        scenario: that was accepted.
        rng: decides how few.
    """
    document = scenario.model_dump(mode="json")
    training, evaluation, data = (document[key] for key in ("training", "evaluation", "data"))
    training |= {"epochs": None, "rounds": rng.choice((1, 2, 2, 3))}
    evaluation["samples"] = min(evaluation["samples"] or 8, data["validation_samples"] or 8, 8)
    most = 16 * scenario.fleet.num_devices  # where shards are unequal, each must get one sample
    data["train_samples"] = min(data["train_samples"] or most, most)
    if evaluation["every_virtual_s"] is not None:
        evaluation["every_virtual_s"] = 0.6 * training["virtual_time_s"]
    elif training["virtual_time_s"] is None:
        evaluation |= {"every_epochs": None, "every_rounds": 1}
    return Scenario.model_validate(document)


def check_run(scenario):
    """A run in this process ends with a summary, or with one or two clear lines.

    What the cut made impossible is refused beforehand, and that is said as any refusal is.
    """
    place = Path(tempfile.mkdtemp(dir=_folder()))
    path = place / "cut.yaml"
    path.write_text(dump_scenario(scenario))
    try:
        with _end_of_time(MOST_RUN_CPU_S):
            status, out, notices = command_line(["validate", str(path)])
            if not _check_answer(status, out, notices):
                return
            words = ["run", str(path), "--inline", "--out", str(place / "run")]
            status, _, err = command_line(words)
        assert "Traceback" not in err, err[-2000:]
        assert "internal error" not in err, err[-2000:]
        assert err.startswith(notices), err[-2000:]  # a run says first what validate says
        rest = err.removeprefix(notices).splitlines()
        if status == 0:
            assert (place / "run" / "summary.json").is_file()
            assert not any("Warning" in line for line in rest), err[-2000:]
            return
        assert status in (1, 2), (status, err[-2000:])
        _check_lines(rest)
    finally:
        shutil.rmtree(place)


def command_line(words):
    """Exit status, output and errors of the command line in this process."""
    out, err = StringIO(), StringIO()
    argv, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    environment = dict(os.environ)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # what an override drops is said in a line each
    sys.argv = ["edgesim", *words]
    status = None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, handler)
        logging.disable(disabled)
        os.environ.clear()
        os.environ.update(environment)
    return status, out.getvalue(), err.getvalue()


def _fit_for_arguments(text):
    return text.replace("\x00", "0").encode("utf-8", "replace").decode()[:100_000]


@contextmanager
def _limits():
    """An end to time and memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = resource.getrlimit(resource.RLIMIT_AS)
    there = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (there + MOST_BYTES, most[1]))
    try:
        with _end_of_time(MOST_CPU_S):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, most)


@contextmanager
def _end_of_time(most_s):
    """An end to what this process may take of a processor."""

    def stop(*_):
        raise TooMuchWorkError(f"more than {most_s:g} s of a processor")

    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, most_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)


@cache
def _warm_up():
    """Load what a check loads, so that the limits are of the check alone."""
    status, _, err = command_line(["validate", str(ROOT / "scenarios" / "quickstart.yaml")])
    assert status == 0, err


@cache
def _bases():
    """Sound scenarios; those of datasets that are not here are given some images."""
    bases = []
    for path in sorted((ROOT / "scenarios").rglob("*.yaml")):
        if "\nsweep:" in path.read_text():
            continue
        base = yaml.safe_load(path.read_text())
        topology = base["topology"]
        if "path" in topology:
            topology["path"] = str((path.parent / topology["path"]).resolve())
        data = base["data"]
        data.pop("download", None)
        if data.get("source", "digits") != "digits":
            data |= {"source": "cifar10", "path": str(_images())}
        bases.append(base)
    return bases


@cache
def _images():
    """A folder with 400 images in the layout of CIFAR-10."""
    folder = _folder() / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split, count in (("train", 320), ("test", 80)):
        cells = []
        for image in rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8):
            buffer = BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            cells.append({"bytes": buffer.getvalue(), "path": None})
        labels = pa.array(np.arange(count) % 10)
        pq.write_table(pa.table({"image": cells, "label": labels}), folder / f"{split}.parquet")
    return folder


@cache
def _folder():
    """A folder that goes when the process goes."""
    folder = Path(tempfile.mkdtemp(prefix="edgesim-fuzz-"))
    owner = os.getpid()

    def remove():
        if os.getpid() == owner:
            with suppress(OSError):
                shutil.rmtree(folder)

    atexit.register(remove)
    return folder
