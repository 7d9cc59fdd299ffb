"""CIFAR-10 in Parquet files, read without edgesim."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
PADDING = 4  # pixels of the border within which a crop is taken


def read(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images, NHWC, and labels of a Parquet file."""
    table = pq.read_table(file).to_pydict()
    decoded = [Image.open(io.BytesIO(image["bytes"])).convert("RGB") for image in table["image"]]
    return np.stack([np.asarray(image) for image in decoded]), np.array(table["label"])
