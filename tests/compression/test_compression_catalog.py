import pytest

from edgesim.compression import COMPRESSORS, CompressionError, Compressor, build_compressor


def test_catalog_names_are_those_of_the_compressors():
    options = {"keep": 0.1, "values": "fp32", "bits": 4}
    for kind, entry in COMPRESSORS.items():
        own = {key: value for key, value in options.items() if key in entry.options}
        compressor: Compressor = build_compressor(kind, **own)
        assert compressor.name == kind
        assert entry.description
        assert entry.description.isascii()


def test_an_unknown_compressor_lists_the_known_ones():
    with pytest.raises(CompressionError, match="top_k"):
        build_compressor("topk", keep=0.1)


def test_missing_and_unknown_options_are_named():
    with pytest.raises(CompressionError, match="keep"):
        build_compressor("top_k", values="fp32")
    with pytest.raises(CompressionError, match="kept"):
        build_compressor("top_k", keep=0.1, kept=0.1, values="fp32")
