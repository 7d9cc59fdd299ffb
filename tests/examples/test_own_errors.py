"""What one's own code does wrong is said in two lines: which part, file and line, what to do.

Here before a run begins; in test_own_errors_in_runs.py in the middle of one.
"""

from __future__ import annotations

import pytest
from broken_examples import (
    ALGORITHM,
    COMPRESSOR,
    DATASET,
    MODEL,
    OPTIMIZER,
    PARTITION,
    SCHEDULE,
    TASK,
    broken,
    frames_of,
)

from edgesim.api.checks import check
from edgesim.assembly.preparation import prepare
from edgesim.errors import EdgesimError, OwnCodeError
from edgesim.scenario import load_scenario
from edgesim.study.iteration import iteration_costs

FROZEN = (
    "{file}:37: FrozenInstanceError: cannot assign to field 'u'; a part is frozen: values that "
    "change belong in the state of the algorithm or optimizer"
)
OTHER_FROZEN = "{file}:37: FrozenInstanceError: cannot assign to field 'weight'"

NO_ROUNDS = [
    (ALGORITHM, "u, v = state.u,", "u, v = nothing,", "send_ fails at {file}:37: NameError"),
    (ALGORITHM, '"ecq"', '"ECQ!"', "name is 'ECQ!'; must be 1 to 32 of a-z, 0-9 and _"),
    (ALGORITHM, "return EcqState(", "return (", "init gives an object of type tuple; must be a G"),
    (ALGORITHM, "return Buffers(kept=1,", "return dict(a=1,", "of type dict; must be a Buffers"),
    (ALGORITHM, "return send *", "return 0 * send.macs *", "work fails at {file}:56: TypeError"),
    (ALGORITHM, "fade: float", "fade: float = 1\n    more: object = ([],)", "can't be hashed"),
    (ALGORITHM, "return [Share(", "return [None and Share(", "send_ gives a list with None; must"),
    (ALGORITHM, "Share(edge.receiver,", "Share(7,", "for devices 7, but its out-edges are to devi"),
    (ALGORITHM, "edge.weight, u, c", "edge.weight, -u, c", "push weight -1.0; must be finite, and"),
    (ALGORITHM, "state.u -= leaving * u", "pass", "the sum of u over devices from 2 to 2.2; absor"),
    (
        ALGORITHM,
        "state.u += arriving",
        "state.u -= arriving",
        "sum of u over devices from 2 to 1.6",
    ),
    (ALGORITHM, "for share in received:", "x = 1", "fails at {file}:47: IndentationError"),
    (
        ALGORITHM,
        "c.add_to_(v, scale=-1.0)",
        "state.delta = {1}",
        "kept in a checkpoint: state/delta",
    ),
    (ALGORITHM, "state.u -= leaving * u", "state.u = torch.tensor(1.0)", "u is tensor(1.)"),
    (
        ALGORITHM,
        "state.u -= leaving * u",
        "state.x[3:5] = float('inf')",
        "after send_ 2 of 179 entries of x are not finite, first entry 3, which is inf",
    ),
    (ALGORITHM, "state.u -= leaving * u", "state.u = -1.0", "after send_ u is -1.0; must be a f"),
    (ALGORITHM, "state.x, scale=-leaving", "state.x, scale=-torch.rand(1)", "from the same state"),
    (
        ALGORITHM,
        "for share in received:",
        "state.delta.add_(torch.rand(()))\n        for share in received:",
        "two rounds from the same state and generator differ (delta of a state after round 0",
    ),
    (ALGORITHM, "torch.zeros_like(x))", "x)", "delta and state/x overlap in memory; clone one of"),
    (
        ALGORITHM,
        "Buffers(kept=1,",
        "Buffers(kept=0,",
        "that 0 flat vectors are kept beside x; the s",
    ),
    (
        ALGORITHM,
        'name = "ecq"',
        'needs_exchanges = "double"; name = "ecq"',
        "needs_exchanges is 'double'; must be one of 'any', 'fixed', 'balanced'",
    ),
    (ALGORITHM, "state.u -= leaving * u", "raise SystemExit(3)", "fails at {file}:42: SystemExit"),
    (ALGORITHM, "u, v = state.u,", "self.u = 1; u, v = state.u,", f"send_ fails at {FROZEN}"),
    (
        ALGORITHM,
        "u, v = state.u,",
        "out_edges[0].weight = 1; u, v = state.u,",
        f"at {OTHER_FROZEN}",
    ),
    (COMPRESSOR, "x.numpy()", "x.numpy(); self.block = 2", "compress fails at {file}:36: FrozenIn"),
    (COMPRESSOR, "return Payload(", "return (", "compress(x, layout, rng) gives an object of ty"),
    (COMPRESSOR, "FP32, indices,", "FP32, indices[::-1],", "a payload of 23 values can't be sent"),
    (COMPRESSOR, "codes, scales)", "codes[1:], scales)", "a payload of 22 values can't be sent"),
    (COMPRESSOR, "codes, scales)", "codes.astype(float), scales)", "float64; fp32 takes float32"),
    (COMPRESSOR, "np.abs(values)", "np.random.rand(len(values))", "two payloads of one vector and"),
    (COMPRESSOR, "values = x.numpy()", "values = x.mul_(2).numpy()", "compress changes x, which"),
    (COMPRESSOR, "x.numpy()", "x.nump()", "compress fails at {file}:36: AttributeError: 'Tensor'"),
    (COMPRESSOR, "return 1 / self.block", "return 5", "keep is 5; must be a share of the entries"),
    (COMPRESSOR, "return MessageForm.sparse", "return str", "form fails at {file}:30: TypeError"),
    (COMPRESSOR, "ops = 2 *", "return 3 #", "form(layout) gives 3; must be a MessageForm"),
    (COMPRESSOR, "return {}", "return 12", "conventions(layout) gives 12; must be a dict of byt"),
    (OPTIMIZER, "kept: int = 2", "kept: str = '2'", "kept is '2'; must be a number of flat vect"),
    (OPTIMIZER, "return vector_work(", "return (", "{file}:41: SyntaxError: invalid syntax. Maybe"),
    (OPTIMIZER, "return AdamState(", "return (", "in a checkpoint: it is an object of type tuple"),
    (OPTIMIZER, "x.sub_(", "x.sub_(0 * nan *", "step_ fails at {file}:34: NameError"),
    (OPTIMIZER, "x.sub_(gamma", "x.sub_(torch.rand(()) * gamma", "two steps from the same state"),
    (OPTIMIZER, "x.sub_(", "return x.sub(", "and leaves x as it was; it must change x in place"),
    (
        OPTIMIZER,
        "kept: int = 2",
        "kept: int = 1",
        "kept is 1, but between rounds the state holds 2",
    ),
    (
        OPTIMIZER,
        "torch.zeros_like(x), torch.zeros_like(x)",
        "x, torch.zeros_like(x)",
        "state/m and x overlap in memory; clone one of them: gossip changes x, and all devices",
    ),
    (
        OPTIMIZER,
        "    steps: int = 0",
        "    steps: int = 0\n    past: tuple = __import__('time').gmtime(0)",
        "past is a struct_time, and comes back as a tuple",
    ),
    (OPTIMIZER, "x.sub_(gamma", "x.data = x.sub(gamma", "step_ gives x other memory, so the model"),
    (OPTIMIZER, "state.m.mul_", "state.v = g.abs_()\n        state.m.mul_", "v and g overlap in m"),
    (
        OPTIMIZER,
        "pass  #",
        "x.mul_(0.9)  #",
        "after_gossip_ changes x; only step_ may, since gossip",
    ),
    (
        OPTIMIZER,
        "return AdamState(",
        "x.zero_()\n        return AdamState(",
        "init changes x; only",
    ),
    (
        OPTIMIZER,
        "x.sub_(",
        "x.requires_grad_().data.sub_(",
        "after step_ x requires a gradient; g h",
    ),
    (OPTIMIZER, "ops=14", "ops=-14", "work(n) has elementwise_ops -338380; must be a whole number"),
    (OPTIMIZER, "ops=14", "ops=1.5", "work(n) has elementwise_ops 36255.0; must be a whole number"),
    (OPTIMIZER, "kept: int = 2", "kept: int = -2", "kept is -2; must be a number of flat vectors"),
    (
        OPTIMIZER,
        "@dataclass\n",
        "@dataclass(frozen=True)\n",
        "its dataclass is frozen, so nothing c",
    ),
    (
        OPTIMIZER,
        "torch.zeros_like(x), t",
        "x.bfloat16(), t",
        "state/m is torch.bfloat16, which check",
    ),
    (
        OPTIMIZER,
        "pass  #",
        "state.steps = type(state)(x.clone(), x.clone())  #",
        "state/steps is a AdamState, and comes back as a dict",
    ),
    (
        SCHEDULE,
        "return self",
        "import random\n        return random.random() + self",
        "if it is made ane",
    ),
    (
        SCHEDULE,
        "return self.least",
        "return True or self.least",
        "rate of epoch 0 is True; must be",
    ),
    (SCHEDULE, "return self.least", "return -1 + self.least", "rate of epoch 0 is -0.95; must be"),
    (SCHEDULE, "self.base - self.least", "self.base - self.last", "at fails at {file}:15: Attrib"),
    (TASK, "delta=self.delta)", "delta=self.delta, reduction='none')", "must be one number with a"),
    (TASK, "targets)) * len(targets)", "targets))", "are two: sums must give sums over sam"),
    (
        TASK,
        "return means",
        "return {**means, 'accuracy': 72.0}",
        "gives an accuracy of 72; must be a",
    ),
    (
        TASK,
        "return functional",
        "return __import__('torch').rand(()) * functional",
        "asked again for",
    ),
    (
        TASK,
        "return functional",
        "targets += 1\n        return functional",
        "loss changes targets, whi",
    ),
    (
        TASK,
        "(outputs[:, 0], t",
        "(outputs[:, 0].detach().requires_grad_(), t",
        "no gradient at the out",
    ),
    (
        TASK,
        '"""Mean over the batch; the',
        'outputs.sum().backward()\n        """Mean',
        "backward pass its",
    ),
    (
        TASK,
        "Huber:",
        "Huber:\n    targets = 'float32'",
        "targets is 'float32'; must be a Targets of",
    ),
    (TASK, '"worst_share"', '"distance"', "a metric is called distance; must be of a-z"),
    (TASK, '"loss": float(', '"los": float(', "sums(outputs, targets) has no loss"),
    (TASK, "int((errors", "((errors", "gives a tensor of torch.int64 and shape () as worst_share"),
    (TASK, "return means", "return {'loss': 1.0}", "summary(means) has no worst_share"),
    (TASK, '"worst_share"', '"round"', "a metric is called round; must be of a-z"),
    (TASK, "errors = (outputs", "errors = (output", "sums fails at {file}:29: NameError"),
    (TASK, "functional.huber_loss", "functional.huber", "loss fails at {file}:25: AttributeError"),
    (
        MODEL,
        "(self.first(inputs)))",
        "(self.first(inputs)))[0]",
        (
            "gives outputs of shape (3,) that training.task can't take, for inputs of shape (4, 6) "
            "and targets of shape (4,); must be (4, 3): a row for each sample: "
        ),
    ),
    (MODEL, "(self.first(inputs)))", "(self.first(inputs))),", "type tuple for a batch; it must"),
    (MODEL, "self.slope * x)", "self.slope @ x)", "at {file}:18"),
    (DATASET, "rng.normal(size=(CLASSES", "rng.norm(size=(CLASSES", "at {file}:24: AttributeError"),
    (
        DATASET,
        "return inputs + 0.05",
        "return inputs + 1 / 0",
        "transform fails at {file}:42: Zero",
    ),
    (DATASET, "return inputs +", "return inputs[1:]; 3 +", "must give as many of the same type"),
    (PARTITION, "np.argsort", "np.sorted", "few_labels fails at {file}:11: AttributeError"),
]


@pytest.mark.parametrize(("key", "old", "new", "said"), NO_ROUNDS)
def test_it_is_found_before_a_run(tmp_path, key, old, new, said):
    path, file = broken(tmp_path, key, {old: new})
    with pytest.raises(EdgesimError) as caught:
        prepare(load_scenario(path))
    text = str(caught.value)
    assert said.format(file=file) in text
    assert text.startswith((f"{key}: ", "model: "))
    assert "\n" not in text
    for note in frames_of(caught.value):
        files = [line for line in note.splitlines() if line.strip().startswith("File ")]
        assert files
        assert all(f'File "{file}"' in line for line in files)


def test_rates_that_are_all_0_are_said(tmp_path):
    path, _ = broken(tmp_path, SCHEDULE, {"return self.least": "return 0 * self.least"})
    assert prepare(load_scenario(path)).notices == ()
    path, _ = broken(
        tmp_path, SCHEDULE, {"(1 + cos(pi * share)) / 2": "0", "return ": "return 0 * "}
    )
    (said,) = prepare(load_scenario(path)).notices
    assert said == f"{SCHEDULE}: the learning rate is 0 in all epochs, so steps change no parameter"


def test_frames_are_those_of_ones_own_code(tmp_path):
    path, file = broken(tmp_path, MODEL, {"self.slope * x)": "self.slope @ x )"})
    with pytest.raises(EdgesimError) as caught:
        prepare(load_scenario(path))
    (note,) = frames_of(caught.value)
    lines = [line.strip() for line in note.splitlines()]
    assert lines == [
        "in your code:",
        f'File "{file}", line 31, in forward',
        "return self.second(self.gate(self.first(inputs)))",
        *([lines[3]] if lines[3].strip("^~ ") == "" else []),
        f'File "{file}", line 18, in forward',
        "return x * torch.sigmoid(self.slope @ x )",
        *([lines[-1]] if lines[-1].strip("^~ ") == "" else []),
    ]


@pytest.mark.parametrize(
    ("key", "old", "new", "said"),
    [
        (COMPRESSOR, "ops = 2 *", "ops = two *", "form fails at {file}:29: NameError"),
        (
            ALGORITHM,
            "n, message =",
            "message, n = 3, 1 / 0 #",
            "work fails at {file}:52: ZeroDiv",
        ),
        (OPTIMIZER, "return vector_work(", "return int(", "work fails at {file}:"),
    ],
)
def test_costs_say_it_too(tmp_path, key, old, new, said):
    path, file = broken(tmp_path, key, {old: new})
    with pytest.raises(EdgesimError) as caught:
        iteration_costs(load_scenario(path))
    assert str(caught.value).startswith(f"{key}: {said.format(file=file)}")
    assert frames_of(caught.value)


def test_the_check_of_memory_says_it_too(tmp_path):
    """It compresses a vector of noise, which is none of those of the rehearsal."""
    fails = {"values = x.numpy()": "values = x.numpy(); 1 / (abs(float(x[0]) - 0.7585166) > 1e-4)"}
    path, file = broken(tmp_path, COMPRESSOR, fails)
    with pytest.raises(OwnCodeError) as caught:
        check(load_scenario(path, ["fleet.profile=raspberry-pi-4b"]), "s", reads_images=False)
    assert "while the bytes of a message are counted" in str(caught.value)
    assert "compress while the bytes" in str(caught.value)
    assert f"{file}:36: ZeroDivisionError" in str(caught.value)


FEWER = {"edge.address) for edge in out_edges]": "edge.address) for edge in out_edges[1:]]"}


def test_messages_that_an_algorithm_does_not_send_are_found_before_a_run(tmp_path):
    """Their receivers would wait for them until the run stalls."""
    path, _ = broken(tmp_path, ALGORITHM, FEWER)
    with pytest.raises(EdgesimError) as caught:
        prepare(load_scenario(path, ["topology={kind: ring}"]))
    assert str(caught.value) == (
        "gossip.algorithm: send_ gives shares for devices 2, but its out-edges are to devices 1, "
        "2; one Share is due for each edge, with its receiver and address"
    )


def test_an_exchange_that_moves_the_average_is_told_of(tmp_path):
    path, _ = broken(
        tmp_path, ALGORITHM, {"state.x, scale=-leaving": "state.x, scale=-0.9 * leaving"}
    )
    (notice,) = prepare(load_scenario(path)).notices
    assert "one exchange changes the sum of x over devices by 0.0" in notice
    assert "unless that is meant, absorb_ must add at the receiver what send_ takes" in notice
    assert notice in check(load_scenario(path), "s", reads_images=False).notices


def test_what_a_part_refuses_when_it_is_made_has_its_frames(tmp_path):
    changes = {
        "centers = rng": "raise DataError('no readings')\n        centers = rng",
        "from torch import nn": "from torch import nn\n\nfrom edgesim.data.errors import DataError",
    }
    path, file = broken(tmp_path, DATASET, changes)
    with pytest.raises(EdgesimError, match="no readings") as caught:
        prepare(load_scenario(path))
    (note,) = frames_of(caught.value)
    assert f'File "{file}", line' in note
