"""Examples of own parts, each changed so that it is wrong."""

from __future__ import annotations

import shutil

from runs_of_examples import EXAMPLES

ALGORITHM, COMPRESSOR = "gossip.algorithm", "gossip.compressor.kind"
OPTIMIZER, SCHEDULE, TASK = "training.optimizer.kind", "training.schedule.kind", "training.task"
MODEL, DATASET, PARTITION = "model.name", "data.source", "data.partition.kind"

SCENARIOS = {
    ALGORITHM: ("all_own.yaml", "ecq_gossip.py"),
    COMPRESSOR: ("all_own.yaml", "block_compressor.py"),
    MODEL: ("all_own.yaml", "gated.py"),
    DATASET: ("all_own.yaml", "sensors.py"),
    OPTIMIZER: ("adam.yaml", "adam.py"),
    SCHEDULE: ("cosine.yaml", "cosine.py"),
    TASK: ("power.yaml", "power.py"),
    PARTITION: ("few_labels.yaml", "few_labels.py"),
}


def broken(tmp_path, key, changes):
    """A scenario of the examples, one of whose files is changed, and is like no other's."""
    scenario, file = SCENARIOS[key]
    for path in (*EXAMPLES.glob("*.py"), EXAMPLES / scenario):
        shutil.copy(path, tmp_path)
    source = (tmp_path / file).read_text()
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    (tmp_path / file).write_text(f"{source}\n# {tmp_path}\n")
    return tmp_path / scenario, tmp_path / file


def frames_of(error):
    """The note with frames of own code."""
    return [note for note in getattr(error, "__notes__", []) if note.startswith("in your code:")]
