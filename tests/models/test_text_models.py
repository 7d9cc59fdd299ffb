"""Encoders of texts: sizes, results, what they refuse; small ones, written by the test."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from edgesim.assembly.build import quantization_settings
from edgesim.data.errors import DataError
from edgesim.data.torchvision_compat import torchvision_datasets
from edgesim.models.eight_bit import EightBit
from edgesim.models.errors import ModelError
from edgesim.models.in_eight_bits import replace_layers_
from edgesim.models.text.attention import AttentionProducts
from edgesim.models.text.encoder import distilbert, encoder
from edgesim.quant.backends import make_backend
from edgesim.quant.layers import name_layers_, seed_rounding_

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="pip install 'edgesim[text]'"
)

TINY = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2, "hidden": 24, "positions": 12}
KINDS = ["distilbert", "bert"]
SETTINGS = quantization_settings()


def rows(num_samples=3, length=8, seed=0):
    """Rows of tokens with masks of several lengths."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 50, (num_samples, length), generator=generator)
    lengths = torch.randint(3, length + 1, (num_samples, 1), generator=generator)
    mask = (torch.arange(length) < lengths).to(torch.int64)
    return torch.stack([tokens * mask, mask], dim=1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny encoder of each kind, as `save_pretrained` leaves it."""
    import transformers  # takes a second, so only if its tests run

    sizes = {
        "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
        "bert": {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
        },
    }
    torchvision_datasets()  # transformers imports torchvision, which may lack operators
    made = {}
    for kind in KINDS:
        config = transformers.AutoConfig.for_model(
            kind, vocab_size=50, max_position_embeddings=12, **sizes[kind]
        )
        torch.manual_seed(5)
        made[kind] = tmp_path_factory.mktemp(kind)
        transformers.AutoModel.from_config(config).save_pretrained(made[kind])
    return made


def test_distilbert_base_has_the_parameters_of_the_reference():
    """docs/reference.md, section 5: 66,362,880 and a head of two layers, 593,668 for 4 classes."""
    with torch.device("meta"):
        model = distilbert((2, 128), 4)
    by_part = {"head": 0, "base": 0}
    for name, parameter in model.named_parameters():
        part = "base" if name.startswith("model.distilbert.") else "head"
        by_part[part] += parameter.numel()
    assert by_part == {"base": 66_362_880, "head": 593_668}


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers_own_attention(folders, kind):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = encoder((2, 8), 3, encoder=str(folders[kind])).eval()
    inputs = rows()
    plain = model.model
    with torch.no_grad():
        ours = model(inputs)
        plain.set_attn_implementation("eager")
        theirs = plain(input_ids=inputs[:, 0], attention_mask=inputs[:, 1]).logits
    assert ours.shape == (3, 3)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_each_attention_has_products_and_dropout_of_its_own(folders, kind):
    model = encoder((2, 8), 3, encoder=str(folders[kind]), dropout=0.25)
    found = [m for m in model.modules() if isinstance(m, AttentionProducts)]
    assert len(found) == 2
    assert {m.dropout.p for m in found} == {0.25}
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.25}


def test_what_stands_behind_the_mask_has_no_influence():
    model = distilbert((2, 8), 4, **TINY).eval()
    inputs = rows()
    other = inputs.clone()
    other[:, 0] = torch.where(inputs[:, 1] == 1, inputs[:, 0], 7)
    assert not torch.equal(inputs, other)
    torch.testing.assert_close(model(inputs), model(other))


@pytest.mark.parametrize("kind", KINDS)
def test_pretrained_weights_are_those_of_the_folder_and_others_are_random(folders, kind):
    import transformers  # takes a second, so only if its tests run

    theirs = transformers.AutoModel.from_pretrained(folders[kind]).state_dict()
    for pretrained in (True, False):
        torch.manual_seed(2)
        ours = encoder((2, 8), 3, encoder=str(folders[kind]), pretrained=pretrained)
        base = ours.model.base_model.state_dict()
        common = {name for name in theirs if name.endswith("weight") and theirs[name].dim() == 2}
        equal = {name for name in common if torch.equal(theirs[name], base[name])}
        assert equal == (common if pretrained else set())


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_behind_the_mean_sees_tokens_before_the_mask_alone(folders, kind):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = encoder((2, 8), 3, encoder=str(folders[kind]), head="mean", layers=1).eval()
    inputs = rows()
    other = inputs.clone()
    other[:, 0] = torch.where(inputs[:, 1] == 1, inputs[:, 0], 7)
    torch.testing.assert_close(model(inputs), model(other))
    tokens, mask = inputs[:, 0], inputs[:, 1]
    hidden = model.model.base(input_ids=tokens, attention_mask=mask)[0]
    means = torch.stack([h[m == 1].mean(0) for h, m in zip(hidden, mask, strict=True)])
    torch.testing.assert_close(model(inputs), model.model.classifier(means))
    assert len([m for m in model.modules() if isinstance(m, AttentionProducts)]) == 1
    with pytest.raises(ModelError, match="layers is 3; the encoder has 2"):
        encoder((2, 8), 3, encoder=str(folders[kind]), layers=3)


def test_inputs_that_are_no_texts_and_sizes_that_do_not_fit_are_refused(folders):
    for options, remedy in (
        ({"input_shape": (1, 8, 8)}, "choose data.source: ag_news or sent_len"),
        ({"input_shape": (2, 13)}, "13 tokens, the encoder has places for 12; lower data.options"),
        ({"input_shape": (2, 8), "heads": 3}, "width is 16; must be a multiple of heads"),
    ):
        with pytest.raises(ModelError, match=remedy):
            distilbert(num_classes=4, **{**TINY, **options})
    model = distilbert((2, 8), 4, **TINY)
    with pytest.raises(ModelError, match=r"have the token 50, the encoder knows 50; give data.opt"):
        model(torch.full((1, 2, 8), 50))


def test_a_folder_without_an_encoder_is_refused_in_one_line(tmp_path, folders):
    with pytest.raises(DataError, match="is no folder"):
        encoder((2, 8), 4, encoder=str(tmp_path / "no"))
    with pytest.raises(ModelError, match=r"holds no encoder .* config.json and model") as caught:
        encoder((2, 8), 4, encoder=str(tmp_path))
    assert "\n" not in str(caught.value)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folders["bert"] / name).read_bytes()[:-20])
        with pytest.raises(ModelError, match="holds no encoder") as caught:
            encoder((2, 8), 4, encoder=str(tmp_path))
        assert "\n" not in str(caught.value)
        (tmp_path / name).write_bytes((folders["bert"] / name).read_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_is_traced_as_a_program(folders, kind):
    model = encoder((2, 8), 3, encoder=str(folders[kind])).eval().requires_grad_(False)
    sizes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (rows(2),), dynamic_shapes=sizes).module()
    for num_samples in (1, 5):
        inputs = rows(num_samples, seed=1)
        torch.testing.assert_close(program(inputs), model(inputs))


def test_tokens_that_the_classifier_does_not_read_keep_their_gradients_in_8_bits():
    """A classifier reads the first token; gradients of the others are tens of times smaller."""
    tokens = torch.randint(4, 50, (16, 12), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = 2  # the first mark of each text
    inputs, labels = torch.stack([tokens, torch.ones_like(tokens)], dim=1), torch.arange(16) % 4
    found = []
    for precision in ("fp32", "int8"):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = distilbert((2, 12), 4, **TINY, dropout=0)
        if precision == "int8":
            arithmetic = make_backend("reference", SETTINGS)
            layers = EightBit("range_evonorm", arithmetic, SETTINGS, conv_bias=True)
            model, _ = replace_layers_(model, layers)
            name_layers_(model)
            seed_rounding_(model, 7)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        found.append(model.model.distilbert.embeddings.word_embeddings.weight.grad)
    exact, rounded = found
    size = exact.norm(dim=1)
    assert size[4:].max() < size[2] / 20
    assert torch.cosine_similarity(exact[4:].flatten(), rounded[4:].flatten(), dim=0) > 0.95
