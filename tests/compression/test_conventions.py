import pytest
from compression_strategies import resnet20_layout

from edgesim.compression import conventions
from edgesim.compression.compressors import QSGD, Identity, MinMaxUInt8, RandomK, SignScale, TopK
from edgesim.learning.parameters import ParameterLayout


def test_resnet20_figures_of_the_reference_and_the_paper():
    """reference.md, section 10, check 11; the 8-bit variant has 122 more parameters, each sent by
    itself (reference.md, section 1.5)."""
    layout = resnet20_layout()
    assert conventions.reference_dense_bytes(layout.numel) == 1_093_036
    assert conventions.reference_sparse_bytes(2_767) == 16_605
    assert conventions.reference_sparse_bytes(2_767 + 122) == 17_337
    assert conventions.paper_dense8_bytes(layout.numel, layout.num_tensors) == 273_950


def test_paper_sparse8_of_resnet20_at_99_percent():
    """reference.md, section 6: 8,993 bytes for 2,767 entries of 86 tensors."""
    assert conventions.paper_sparse8_bytes(2_767, 86) == 8_993


@pytest.mark.parametrize(
    ("compressor", "counts"),
    [
        # 10 and 2 entries, of which half are 5 and 1: 6 x 6 + 3; 3 x 6 + 8 x 2 + 4.
        (TopK(0.5, "fp32"), {"reference": 39, "paper_8bit": 38}),
        (RandomK(0.5, "int8"), {"reference": 39, "paper_8bit": 38}),
        # All 12: 4 x 13; 12 + 8 x 2 + 4.
        (Identity("fp16"), {"reference": 52, "paper_8bit": 32}),
        (QSGD(4), {"reference": 52}),
        # Two buckets: each a header of 32, and 10 or 2 codes filled up to 32.
        (MinMaxUInt8(), {"bagua": 128}),
        # Four: of 4, 4, 2 and 2 entries.
        (MinMaxUInt8(bucket_size=4), {"bagua": 256}),
        (QSGD(4, bucket_size=4), {"reference": 52}),
        (SignScale(), {}),
    ],
)
def test_a_message_is_counted_by_the_conventions_that_have_a_rule_for_it(compressor, counts):
    layout = ParameterLayout.from_shapes([(10,), (2,)])
    assert compressor.conventions(layout) == counts
