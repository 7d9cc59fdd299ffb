"""The small CNN learns the digits that quickstart trains on."""

import torch
from torch.nn import functional

from edgesim.models import build_model, full_precision


def test_it_reads_digits_after_four_epochs():
    """SGD with momentum, every fifth image held out; chance is 0.10."""
    from sklearn.datasets import load_digits  # slow to import, so only if this test runs

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    generator = torch.Generator().manual_seed(1)
    model = build_model(
        "small_cnn",
        image_shape=(1, 8, 8),
        num_classes=10,
        layers=full_precision("evonorm_s0"),
        generator=generator,
    )
    train = torch.nonzero(~held_out).squeeze(1)
    momenta = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for _ in range(4):
        for batch in train[torch.randperm(len(train), generator=generator)].split(16):
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient, m in zip(
                    model.parameters(), gradients, momenta, strict=True
                ):
                    parameter -= 0.05 * m.mul_(0.9).add_(gradient)
    with torch.no_grad():
        predictions = model.eval()(images[held_out]).argmax(1)
    accuracy = float((predictions == labels[held_out]).float().mean())
    assert accuracy > 0.94, accuracy
