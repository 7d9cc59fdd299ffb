"""Shapes of convolutions, by position."""

from edgesim.quant.kernels.geometry import ConvolutionShape


def shape_of(C, out, H, W, k, s, p, groups=1) -> ConvolutionShape:
    return ConvolutionShape(
        channels=C,
        out_channels=out,
        height=H,
        width=W,
        kernel=k,
        stride=s,
        padding=p,
        groups=groups,
    )
