"""fp32 against 8 bits for every model of the catalog."""

import re
import xml.etree.ElementTree as ET

import pytest

from edgesim.assembly.build import quantization_settings
from edgesim.models import MODELS
from edgesim.study.catalog_study import CASES, compare_catalog
from edgesim.study.figures.catalog_figures import catalog_pictures
from edgesim.study.tables.comparison_tables import catalog_tables, model_name
from edgesim.study.tables.precision_ratios import precision_ratios

# reference.md, section 5: parameters; and MACs of a forward pass, where it has them.
PARAMETERS = {
    "resnet20": 273_258,
    "resnet54": 760_458,
    "resnet18": 11_186_442,
    "vgg11": 9_496_522,
    "mobilenet_v2": 2_314_466,
    "small_cnn": 24_458,
}


@pytest.fixture(scope="module")
def comparisons():
    return compare_catalog(quantization_settings())


@pytest.fixture(scope="module")
def ratios(comparisons):
    return {
        (c.setting.name, c.setting.image_shape[1]): {r.key: r.value for r in precision_ratios(c)}
        for c in comparisons
    }


def test_every_model_is_there_at_the_size_it_is_for(comparisons):
    fixed = set(MODELS) - {"resnet"}  # whose size is free; its default one is ResNet-20's
    assert {name for name, _ in CASES} == fixed == set(PARAMETERS)
    assert {case for case in CASES if case[1] == 224} == {("vgg11", 224), ("resnet18", 224)}
    for comparison in comparisons:
        assert comparison.fp32.num_trainable == PARAMETERS[comparison.setting.name]
        assert comparison.setting.batch_size == 32


def test_bit_width_saves_as_much_on_every_model(ratios):
    """Between no input gradient at all and that of every layer: 2 to 32 (1 + 1) / (8 + 32)."""
    for of_model in ratios.values():
        assert 1.6 < of_model["counted_fp32_weight_gradient"] <= 2.0
        assert 32 * 2 / (8 + 16) < of_model["counted_fp16_weight_gradient"] <= 3.0
        assert of_model["counted_int8_weight_gradient"] == 4.0


def test_memory_is_saved_where_activations_dominate(ratios):
    """Gradients and momentum stay fp32: with few pixels, parameters are most of it."""
    for name in ("vgg11", "resnet18"):
        small, large = ratios[name, 32], ratios[name, 224]
        assert small["paper"] < 1.6 < 2.5 < large["paper"]
        assert small["faithful_choco_99_percent"] < large["faithful_choco_99_percent"]
    # ResNet-18 holds h and S of CHOCO, x, z, and two fp32 copies more, in either precision.
    assert ratios["resnet18", 32]["faithful_choco_99_percent"] == pytest.approx(1.0, abs=0.05)


def test_dense_messages_gain_nearly_four_and_sparse_ones_half_of_it(ratios):
    for of_model in ratios.values():
        assert 3.9 < of_model["encoded_0_percent"] < 4.0
        assert 3.9 < of_model["conventions_0_percent"] < 4.0
        assert 2.0 < of_model["encoded_99_percent"] < 2.6


def test_a_whole_iteration_never_saves_what_its_products_do(ratios):
    for of_model in ratios.values():
        for table in ("horowitz_45nm", "jouppi_7nm"):
            products = of_model[f"mac_{table}_paper_fp32_weight_gradient"]
            assert 1.0 < of_model[f"iteration_{table}_99_percent"] < products


def test_tables_and_figures_have_a_row_for_every_model(comparisons):
    names = [model_name(comparison) for comparison in comparisons]
    for table in catalog_tables(comparisons):
        assert [row[0] for row in table.rows] == names
        for row in table.rows:
            assert all(re.search(r"\d", cell) for cell in row)
    pictures = catalog_pictures(comparisons)
    assert [picture.name for picture in pictures] == ["models-ratios", "models-memory"]
    for picture in pictures:
        texts = {"".join(t.itertext()) for t in ET.fromstring(picture.svg).iter()}
        assert set(names) <= texts
