"""Small datasets for tests, written in the formats that the sources read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from edgesim.data.images import Dataset, LabelledImages
from edgesim.data.sources import open_dataset

IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def random_images(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Noise, uint8."""
    return rng.integers(0, 256, shape, dtype=np.uint8)


def encode(image: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """Bytes of an image file; PNG gives back what went in."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    return buffer.getvalue()


def write_parquet(
    path: Path,
    images: Sequence[bytes | None],
    labels: Sequence[int | None],
    *,
    class_names: Sequence[str] | None = None,
    columns: tuple[str, str] = ("image", "label"),
    bare: bool = False,
) -> None:
    """A Parquet file in the Hugging Face layout; `bare`: bytes without a struct."""
    cells = images if bare else [{"bytes": data, "path": None} for data in images]
    table = pa.table(
        {
            columns[0]: pa.array(cells, pa.binary() if bare else IMAGE_STRUCT),
            columns[1]: pa.array(labels, pa.int64()),
        }
    )
    if class_names is not None:
        feature = {"names": list(class_names), "_type": "ClassLabel"}
        info = {"info": {"features": {columns[0]: {"_type": "Image"}, columns[1]: feature}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def write_idx(path: Path, array: np.ndarray) -> None:
    """An IDX file of bytes, gzipped if its name ends so."""
    header = b"\x00\x00\x08" + bytes([array.ndim])
    data = header + b"".join(n.to_bytes(4) for n in array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_cifar(
    folder: Path, dataset_class: type, batches: dict[str, dict[str, Any]], patch: pytest.MonkeyPatch
) -> None:
    """Pickled batches, and their MD5 sums in the place of the published ones."""
    root = folder / dataset_class.base_folder
    root.mkdir(parents=True)
    sums = {}
    for name, content in batches.items():
        data = pickle.dumps(content)
        (root / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()
    for files in ("train_list", "test_list"):
        known = [[name, sums[name]] for name, _ in getattr(dataset_class, files)]
        patch.setattr(dataset_class, files, known)
    meta = dataset_class.meta
    patch.setattr(dataset_class, "meta", {**meta, "md5": sums[meta["filename"]]})


def write_folders(root: Path, images_by_class: dict[str, Sequence[np.ndarray]], kind: str) -> None:
    """One folder of image files for each class."""
    for class_name, images in images_by_class.items():
        (root / class_name).mkdir(parents=True)
        for number, image in enumerate(images):
            (root / class_name / f"{number}.{kind}").write_bytes(encode(image))


def load_dataset(
    source: str, path: Path | None, *, image_size: int | None = None, download: bool = False
) -> Dataset:
    """A dataset with all images read into memory.

    Raises:
        DataError: as `open_dataset`, or an image can't be read.
    """
    dataset = open_dataset(source, path, image_size=image_size, download=download)
    train, test = (LabelledImages(s.images_NHWC, s.labels) for s in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)
