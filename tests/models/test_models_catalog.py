"""What is refused, and how it is said."""

import pytest
import torch

from edgesim.models import MODELS, NORMS, ModelError, build_model, check_model, full_precision


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_cifar_sized_images_fit(name, norm):
    if name != "resnet18" or norm not in ("batch", "range_batch"):  # its last map is one pixel
        check_model(name, (3, 32, 32), full_precision(norm))
    check_model(name, (3, 224, 224), full_precision(norm))


@pytest.mark.parametrize("name", MODELS)
def test_least_side_is_enough_and_one_less_is_refused(name):
    side = MODELS[name].min_side
    generator = torch.Generator().manual_seed(0)
    model = build_model(
        name,
        image_shape=(1, side, side),
        num_classes=3,
        layers=full_precision("evonorm_s0"),
        generator=generator,
    )
    assert model.eval()(torch.ones(1, 1, side, side)).shape == (1, 3)
    with pytest.raises(
        ModelError, match=rf"{name} needs images of at least .* set data.image_size"
    ):
        check_model(name, (1, side, side - 1), full_precision("evonorm_s0"))


@pytest.mark.parametrize("name", MODELS)
def test_batch_norm_takes_one_sample_of_any_size_that_is_accepted(name):
    """Partial batches may hold one sample, of which batch norm needs more than one pixel."""
    side, accepted = MODELS[name].min_side, False
    while not accepted:
        try:
            check_model(name, (1, side, side), full_precision("batch"))
            accepted = True
        except ModelError as error:
            assert "batch norm" in str(error)  # noqa: PT017
            side += 1
    generator = torch.Generator().manual_seed(0)
    model = build_model(
        name,
        image_shape=(1, side, side),
        num_classes=3,
        layers=full_precision("batch"),
        generator=generator,
    )
    assert model.features(torch.ones(1, 1, side, side)).shape[0] == 1
    assert side <= MODELS[name].min_side + 1


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ModelError, match="'resnet19'; there are resnet20, resnet54"):
        check_model("resnet19", (3, 32, 32), full_precision("batch"))
    with pytest.raises(ModelError, match="'layer'; there are batch, group, evonorm_s0"):
        full_precision("layer")


def test_no_channels_and_no_classes_are_refused():
    with pytest.raises(ModelError, match="at least one channel"):
        check_model("resnet20", (0, 32, 32), full_precision("batch"))
    with pytest.raises(ModelError, match="at least one class"):
        build_model(
            "resnet20",
            image_shape=(3, 32, 32),
            num_classes=0,
            layers=full_precision("batch"),
            generator=torch.Generator(),
        )
