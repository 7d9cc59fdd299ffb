"""Section `data`: dataset, and partition among the devices."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from edgesim.scenario.catalog import ARRAYS, PARTITIONS, SOURCES
from edgesim.scenario.own_parts import (
    CATALOG,
    OPTIONS,
    OWN,
    ChosenBy,
    NamedIn,
    NameIn,
    NameOrReference,
    Options,
    OwnPart,
)
from edgesim.scenario.section import (
    ContradictionError,
    Count,
    PathText,
    Probability,
    Quantity,
    Section,
)


class LabelSkewPartition(Section):
    """Part of each shard is sorted by label, the rest is random (docs/reference.md, section 4)."""

    kind: Literal["label_skew"]
    skew: Probability = Field(
        description=(
            "fraction sorted by label: at 0 shards are like all data, at 1 they have one or "
            "two labels; parts are rounded down, so a few samples of each label go to nobody"
        )
    )


class DirichletPartition(Section):
    """Each class is dealt to the devices in Dirichlet proportions."""

    kind: Literal["dirichlet"]
    alpha: Quantity = Field(
        description=("concentration: small values give skewed shards, large values even ones")
    )


class IidPartition(Section):
    """Each shard is a random sample of all data."""

    kind: Literal["iid"]


class OwnerPartition(Section):
    """Each device has the samples of its owner: of a person, a place, a sensor."""

    kind: Literal["by_owner"]
    column: Annotated[str, Field(min_length=1)] = Field(
        description=(
            "column of the dataset with the owner of each sample; a device has the samples of the "
            "owner of its name; owners with other names, sorted, are dealt to the devices in turn"
        )
    )


class FilePartition(Section):
    """A file says which device has which sample."""

    kind: Literal["file"]
    path: PathText = Field(
        description="CSV or Parquet file with the columns sample, a number from 0, and device, its "
        "name, or where devices have none a number from 0; other samples are not used"
    )
    test_path: PathText | None = Field(
        default=None,
        description="the same of test samples: what of them each device is evaluated on beside all",
    )


class OtherPartition(Section):
    """A partition of the catalog without a section of its own, or your own (docs/own-parts.md)."""

    kind: Annotated[OwnPart, NamedIn(PARTITIONS)]
    options: Options = Field(default_factory=dict, description=OPTIONS)


Partition = Annotated[
    LabelSkewPartition
    | DirichletPartition
    | IidPartition
    | OwnerPartition
    | FilePartition
    | OtherPartition,
    ChosenBy("kind", PARTITIONS),
]


class DataSection(Section):
    """Dataset, partition and batches."""

    source: Annotated[
        Annotated[str, NameIn(SOURCES), Tag(CATALOG)]
        | Annotated[OwnPart, NamedIn(ARRAYS), Tag(OWN)],
        Discriminator(NameOrReference(ARRAYS)),
    ] = Field(default="digits", description="dataset, or one of your own; digits needs no files")
    options: Options | None = Field(default=None, description=OPTIONS)
    path: PathText | None = Field(
        default=None,
        description="file or folder of the dataset, relative to the scenario file's folder",
    )
    download: bool = Field(default=False, description="fetch the dataset into path if missing")
    image_size: Annotated[int, Field(ge=4, le=1024)] | None = Field(
        default=None,
        description="side in pixels: images are scaled until their shorter side has it, and their "
        "middle square is kept; null: as they are",
    )
    train_samples: Count | None = Field(
        default=None, description="use the first N of a seeded shuffle; null: all"
    )
    validation_samples: Count | None = Field(
        default=None,
        description="hold back N training samples, the same ones for every seed, and evaluate on "
        "them in place of the test samples; null: train on all, evaluate on the test samples",
    )
    partition: Partition = Field(description="how the training samples are dealt to devices")
    batch_size: Count = Field(description="samples per device and round")
    augment: Literal["none", "flip", "crop_flip", "resized_crop_flip"] = Field(
        default="none",
        description="random changes of each training image: flip mirrors it, crop_flip also shifts "
        "it by up to 4 pixels, resized_crop_flip takes a crop of random size and shape; then tests "
        "are on middle squares of images of 8/7 of image_size, as the paper's of Imagenette",
    )

    @property
    def evaluated(self) -> str:
        """What models are evaluated on: `test samples` or `validation samples`."""
        return "test samples" if self.validation_samples is None else "validation samples"

    @model_validator(mode="after")
    def _a_file_deals_all_samples(self) -> Self:
        for key in ("train_samples", "validation_samples"):
            if isinstance(self.partition, FilePartition) and getattr(self, key) is not None:
                raise ContradictionError(
                    key,
                    "is set; must be null or absent for partition.kind: file, which says by itself "
                    "which samples are used",
                )
        return self

    @model_validator(mode="after")
    def _path_fits_source(self) -> Self:
        if self.source == "digits" and self.path is not None:
            raise ContradictionError(
                "path", "is set, but source: digits comes with the program; drop path"
            )
        if self.source in ("image_folder", "parquet") and self.path is None:
            raise ContradictionError(
                "path", f"is missing; source: {self.source} reads the files there"
            )
        if isinstance(self.source, OwnPart):
            shipped = self.source.shipped_as
            source = f"source: {shipped}" if shipped else "your own dataset"
            for key in ("download", "image_size"):
                if getattr(self, key):
                    raise ContradictionError(
                        key, f"is given; {source} brings its samples as they are: remove it"
                    )
        elif self.options is not None:
            raise ContradictionError(
                "options", f"are given; source: {self.source} takes none: remove them"
            )
        if self.download and self.source in ("digits", "image_folder", "parquet"):
            raise ContradictionError(
                "download", f"is true, but source: {self.source} has no download"
            )
        return self
