"""Range EvoNorm and Range BatchNorm written out in torch operations that autograd knows.

Source: reference.md, section 2.
"""

from __future__ import annotations

from math import log, pi, sqrt

import torch

EPSILON = 1e-5


def ratio(entries):
    """0.540208 / sqrt(2 ln M) of reference.md, section 2, from the constants it was computed
    from."""
    return 0.5 * 0.35 * (1 + sqrt(pi * log(4))) / sqrt(2 * log(entries))


def straight_through(s, quantize):
    return s + (quantize(s) - s).detach()


def mean_range(pieces):
    """Of equal extremes the first has all of the gradient: numpy promises to find that one."""
    ranges = []
    for piece in pieces:
        numbers = piece.detach().numpy()
        ranges.append(piece[int(numbers.argmax())] - piece[int(numbers.argmin())])
    return sum(ranges) / len(ranges)


def at_least(R, entries, step):
    """R, or a constant where that is too small."""
    if not step:
        return R
    least = max(step, float(entries.detach().max() - entries.detach().min()) / 16)
    return R if float(R.detach()) >= least else torch.full_like(R.detach(), least)


def keep(s):
    return s


def plain_range_evonorm(x_NCHW, v, gamma, beta, groups, chunks, gate, quantize=keep, step=0.0):
    """Sample by sample, group by group, chunk by chunk, in torch operations that autograd knows.

    With a `step` of codes, R is at least one step and a 16th of the range of the group.
    """
    N, C = x_NCHW.shape[:2]
    scales = []
    for sample in x_NCHW:
        for group in sample.reshape(groups, -1):
            pieces = group.split(len(group) // chunks)
            R = at_least(mean_range(pieces), group, step)
            scales.append(1 / (ratio(len(pieces[0])) * R + EPSILON))
    s = straight_through(torch.stack(scales).view(N, groups), quantize)
    s_NC11 = s.repeat_interleave(C // groups, dim=1)[:, :, None, None]
    v, gamma, beta = (p[None, :, None, None] for p in (v, gamma, beta))
    z = v * x_NCHW
    h = torch.sigmoid(z) if gate == "sigmoid" else ((z + 3) / 6).clamp(0, 1)
    return x_NCHW * h * s_NC11 * gamma + beta


def plain_range_batch_norm(x_NCHW, gamma, beta, quantize=keep, step=0.0):
    """Channel by channel; also the mean, and the scale before it is quantized."""
    outputs, means, scales = [], [], []
    for channel in x_NCHW.transpose(0, 1):
        entries = channel.reshape(-1)
        means.append(entries.mean())
        chunks = min(16, len(entries) // 2)
        length = len(entries) // chunks
        pieces = entries[: chunks * length].split(length)
        R = at_least(mean_range(pieces), entries, step)
        scales.append(1 / (ratio(length) * R + EPSILON))
    s_hat = straight_through(torch.stack(scales), quantize)
    for channel, mean, scale, a, b in zip(
        x_NCHW.transpose(0, 1), means, s_hat, gamma, beta, strict=True
    ):
        outputs.append(((channel - mean) * scale * a + b).relu())
    return torch.stack(outputs, 1), torch.stack(means), torch.stack(scales)


def random_inputs(N, C, H, W, seed=0, dtype=torch.float64):
    """x, and three vectors of a parameter for each channel."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(N, C, H, W), (C,), (C,), (C,)]
    x, *parameters = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return [t.to(dtype) for t in (1.5 * x + 0.3, *parameters)]
