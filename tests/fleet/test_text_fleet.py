"""Fleets that classify texts: same bits inline, one a process and packed; resumed; counted."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pandas as pd
import pytest
from interrupted_runs import resumed, train_and_interrupt
from small_fleets import assert_same_bits, prepared, train
from small_texts import text_scenario, write_ag_news
from thorough import thorough_only

from edgesim.assembly.build import PLAIN
from edgesim.data.torchvision_compat import torchvision_datasets
from edgesim.errors import ScenarioError

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="pip install 'edgesim[text]'"
)

PRECISIONS = ["fp32", "int8"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_ag_news(folder)
    return folder


def overrides(corpus, precision="fp32"):
    scenario = text_scenario(corpus)
    del scenario["name"]
    sections = [f"{key}={json.dumps(value)}" for key, value in scenario.items()]
    return (*sections, f"model.precision={precision}")


@pytest.fixture(scope="module")
def inline_runs(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inline")
    return {p: train(folder, p, *overrides(corpus, p), inline=True) for p in PRECISIONS}


@thorough_only
@pytest.mark.ray
def test_same_bits_however_devices_are_packed(tmp_path, corpus, inline_runs, started_ray):
    """Two actors with two devices each; processes that import transformers take seconds."""
    precision = PRECISIONS[-1]
    packing = "fleet.devices_per_actor=2"
    packed = train(tmp_path, "run", *overrides(corpus, precision), packing)
    assert_same_bits(inline_runs[precision], packed)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, corpus, inline_runs, precision):
    train_and_interrupt(tmp_path, *overrides(corpus, precision), at_step=11)
    assert_same_bits(inline_runs[precision], resumed(tmp_path))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_are_lengths_of_messages_and_texts_are_learned(corpus, inline_runs, precision):
    path = inline_runs[precision].path
    messages = pd.read_parquet(path / "messages.parquet")
    rounds = pd.read_parquet(path / "rounds.parquet")
    assert len(messages) == 4 * 4
    assert messages["bytes"].min() > 0
    assert messages["bytes"].sum() == rounds.sent_bytes.sum()
    assert rounds.loss.iloc[-4:].mean() < rounds.loss.iloc[:4].mean()
    assert (rounds.macs_fp32 + rounds.macs_int8 > 0).all()


def test_a_run_does_not_go_on_with_other_weights(tmp_path, corpus):
    """The files of a pretrained encoder are part of a run's digest."""
    import torch
    import transformers

    torchvision_datasets()  # transformers imports torchvision, which may lack operators
    config = transformers.DistilBertConfig(
        vocab_size=64, dim=16, n_layers=1, n_heads=2, hidden_dim=24, max_position_embeddings=14
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    model = f"model={{name: encoder, options: {{encoder: {tmp_path / 'encoder'}}}}}"
    digests = [prepared(tmp_path, *overrides(corpus)[:-1], model).digest(PLAIN) for _ in range(2)]
    assert digests[0] == digests[1]
    torch.manual_seed(77)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    assert prepared(tmp_path, *overrides(corpus)[:-1], model).digest(PLAIN) != digests[0]


def test_wrong_texts_and_encoders_are_refused_with_their_keys(tmp_path, corpus):
    def said(*changes):
        with pytest.raises((ScenarioError, ValueError)) as caught:
            prepared(tmp_path, *overrides(corpus), *changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert said("data.path=/no/where").startswith("data.source: ag_news: data.path: /no/where")
    assert "no-such" in said("model={name: encoder, options: {encoder: no-such}}")
    assert "data.options.max_len " in said("data.options={max_len: 14}")
    assert "encoders take texts" in said(
        "data={source: digits, partition: {kind: iid}, batch_size: 8}"
    )
    assert "the encoder knows 20" in said("model.options.vocabulary=20")
    assert "name a model of your own" in said("model={name: small_cnn}")
