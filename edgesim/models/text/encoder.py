"""Encoders of transformers with a head for classes of texts: DistilBERT, BERT and their kin.

Source of the architecture: V. Sanh and others, arXiv 1910.01108; docs/reference.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from edgesim.data.text.hub import digest_of, folder_of, transformers
from edgesim.errors import EdgesimError
from edgesim.models.errors import ModelError
from edgesim.models.text.attention import NAME, register_attention

Positive = Annotated[int, Field(ge=1, le=100_000)]
Dropout = Annotated[float, Field(ge=0, lt=1)]

_DROPOUTS = (  # names in configurations
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
)


class TextClassifier(nn.Module):
    """A model of transformers for classes of texts.

    Args:
        model: its forward takes `input_ids` and `attention_mask` and gives `logits`.
        max_length: tokens of a row.
        files_digest: of the files that it was read from; empty if there are none.

    Raises:
        ModelError: the model has places for fewer tokens, or can't take texts.
    """

    def __init__(self, model: nn.Module, max_length: int, files_digest: str = "") -> None:
        super().__init__()
        config: Any = model.config
        places = getattr(config, "max_position_embeddings", None)
        if places is not None and max_length > places:
            raise ModelError(
                f"texts have {max_length} tokens, the encoder has places for {places}; lower "
                "data.options.max_length"
            )
        self.model = model
        self.files_digest = files_digest
        self.vocabulary = int(config.vocab_size)
        _make_attention_layers(model, min(max_length, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, shape (N, classes), of rows of tokens and masks, int64, shape (N, 2, T).

        Raises:
            ModelError: a token is not in the vocabulary.
        """
        tokens, mask = inputs[:, 0], inputs[:, 1]
        if not torch.compiler.is_exporting():  # a program can't depend on values
            self._check(tokens)
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits
        return logits

    def _check(self, tokens: Tensor) -> None:
        if (largest := int(tokens.max())) >= self.vocabulary:
            raise ModelError(
                f"texts have the token {largest}, the encoder knows {self.vocabulary}; give "
                "data.options.tokenizer of the encoder, or as many in model.options.vocabulary"
            )


@dataclass(frozen=True, slots=True)
class Output:
    """What models of transformers give: logits, shape (N, classes)."""

    logits: Tensor


class MeanClassifier(nn.Module):
    """An encoder with a linear layer behind the mean of its tokens, as sentence encoders are used.

    Args:
        base: of transformers, without a head.
        num_classes: of the texts.
    """

    def __init__(self, base: nn.Module, num_classes: int) -> None:
        super().__init__()
        config: Any = base.config
        self.config = config
        self.base = base
        self.classifier = nn.Linear(config.hidden_size, num_classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Output:
        """Logits; tokens behind the end of a text have no weight."""
        hidden_NTC = self.base(input_ids=input_ids, attention_mask=attention_mask)[0]
        weights_NT1 = attention_mask.to(hidden_NTC)[:, :, None]
        total_N1 = weights_NT1.sum(1).clamp(min=1)
        return Output(self.classifier((hidden_NTC * weights_NT1).sum(1) / total_N1))


def encoder(
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    encoder: Annotated[str, Field(min_length=1)],
    pretrained: bool = True,
    layers: Positive | None = None,
    head: Literal["own", "mean"] = "own",
    dropout: Dropout | None = None,
    download: bool = False,
) -> TextClassifier:
    """Any encoder of the Hugging Face hub, with a new head for the classes.

    Args:
        input_shape: (2, tokens of a row).
        num_classes: of the texts.
        encoder: a name of the hub, or a folder written ./folder.
        pretrained: begin with its weights; false: with random ones.
        layers: take so many of its first blocks alone; null: all.
        head: own: of its kind in transformers; mean: a linear layer behind the mean of all tokens.
        dropout: all its probabilities; null: those of its configuration.
        download: fetch it from the Hugging Face hub if it is not on disk.

    Raises:
        ModelError: there is no such encoder, or it can't classify texts.
    """
    length = _length_of(input_shape)
    library, folder = transformers(), folder_of(encoder, download=download)
    config = _read(folder, lambda: library.AutoConfig.from_pretrained(folder))
    config.num_labels = num_classes
    if layers is not None:
        if layers > config.num_hidden_layers:
            raise ModelError(f"layers is {layers}; the encoder has {config.num_hidden_layers}")
        config.num_hidden_layers = layers
    _set_dropout(config, dropout)
    register_attention()
    has_mean = head == "mean"
    make = library.AutoModel if has_mean else library.AutoModelForSequenceClassification

    def made(attention: str) -> nn.Module:
        options = {"attn_implementation": attention}
        model: nn.Module
        if pretrained:
            model = make.from_pretrained(
                folder, config=config, local_files_only=True, dtype=torch.float32, **options
            )
        else:
            model = make.from_config(config, dtype=torch.float32, **options)
        return model

    def of_any_attention() -> nn.Module:
        try:
            return made(NAME)
        except ValueError:  # an architecture that has attention of its own
            return made("eager")

    files = ("config.json", *sorted(path.name for path in folder.glob("*.safetensors")))
    model = _read(folder, of_any_attention)
    model = MeanClassifier(model, num_classes) if has_mean else model
    return TextClassifier(model, length, digest_of(folder, files))


def distilbert(
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    vocabulary: Positive = 30_522,
    layers: Positive = 6,
    width: Positive = 768,
    heads: Positive = 12,
    hidden: Positive = 3072,
    positions: Positive = 512,
    dropout: Dropout = 0.1,
) -> TextClassifier:
    """DistilBERT with random weights, of any size; the defaults are those of distilbert-base.

    Args:
        input_shape: (2, tokens of a row).
        num_classes: of the texts.
        vocabulary: tokens.
        layers: blocks of attention and two linear layers.
        width: numbers of a token, a multiple of heads.
        heads: of attention.
        hidden: numbers of a token between the two linear layers.
        positions: most tokens of a row.
        dropout: in embeddings, attention and linear layers; before the last layer 0.2, or 0 if 0.

    Raises:
        ModelError: the sizes do not fit each other, or the inputs.
    """
    length = _length_of(input_shape)
    if width % heads:
        raise ModelError(f"width is {width}; must be a multiple of heads, which are {heads}")
    library = transformers()
    config = library.DistilBertConfig(
        vocab_size=vocabulary,
        n_layers=layers,
        dim=width,
        n_heads=heads,
        hidden_dim=hidden,
        max_position_embeddings=positions,
        dropout=dropout,
        attention_dropout=dropout,
        seq_classif_dropout=0.2 if dropout else 0.0,
        num_labels=num_classes,
    )
    register_attention()
    make = library.AutoModelForSequenceClassification
    return TextClassifier(make.from_config(config, attn_implementation=NAME), length)


def _length_of(input_shape: tuple[int, ...]) -> int:
    """Tokens of a row.

    Raises:
        ModelError: the inputs are no texts.
    """
    if len(input_shape) != 2 or input_shape[0] != 2:
        raise ModelError(
            f"encoders take texts, as tokens and masks of shape (2, T), and these inputs are of "
            f"shape {input_shape}; choose data.source: ag_news or sent_len"
        )
    return input_shape[1]


def _set_dropout(config: Any, dropout: float | None) -> None:  # noqa: ANN401 (of transformers)
    for name in _DROPOUTS:
        if dropout is not None and hasattr(config, name):
            setattr(config, name, dropout)


def _read(folder: Path, read: Any) -> Any:  # noqa: ANN401 (of transformers)
    """What a function of transformers reads.

    Raises:
        ModelError: it can't.
    """
    try:
        return read()
    except EdgesimError:
        raise
    except Exception as error:  # of one of several libraries
        reason = str(error).strip().partition("\n")[0][:160] or type(error).__name__
        raise ModelError(
            f"{folder} holds no encoder that transformers can read ({reason}); give a folder with "
            "config.json and model.safetensors of one that classifies texts"
        ) from error


def _make_attention_layers(model: nn.Module, length: int) -> None:
    """Let each module with attention make its layers, by a step on a few tokens."""
    if next(model.parameters()).is_meta:  # asked for its sizes alone
        return
    tokens = torch.ones((2, length), dtype=torch.int64)
    with torch.no_grad():
        model.train()(input_ids=tokens, attention_mask=tokens)
