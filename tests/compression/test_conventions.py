from compression_strategies import resnet20_layout

from edgesim.compression import conventions


def test_resnet20_figures_of_the_reference_and_the_paper():
    """R§10, check 11; the 8-bit variant has 122 more parameters, each sent by itself (R§1.5)."""
    layout = resnet20_layout()
    assert conventions.reference_dense_bytes(layout.numel) == 1_093_036
    assert conventions.reference_sparse_bytes(2_767) == 16_605
    assert conventions.reference_sparse_bytes(2_767 + 122) == 17_337
    assert conventions.paper_dense8_bytes(layout.numel, layout.num_tensors) == 273_950


def test_paper_sparse8_of_resnet20_at_99_percent():
    """R§6: 8,993 bytes for 2,767 entries of 86 tensors."""
    assert conventions.paper_sparse8_bytes(2_767, 86) == 8_993
