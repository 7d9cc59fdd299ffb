"""Final models of a run's devices, as flat NumPy vectors.

Symbols:
    x_i: numerator   u_i: push weight   z_i = x_i/u_i: model of device i
    z_bar = sum_i x_i / sum_i u_i: the consensus model
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesim.results.columns import CONSENSUS
from edgesim.results.run_files import REMEDY, RunDirectoryError, RunFiles, number_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """What a device had at the end of a run.

    Attributes:
        device: number of the device; -1 for the consensus model.
        x: numerator, shape (D,), in the order of the model's parameters.
        u: push weight.
        buffers: the model's local statistics, flat.
        rounds_done: rounds that the device completed.
        gone: `died` or `left` if the device was no part of the fleet at the end; else empty. In
            lockstep it is empty: one that leaves gives its place to a successor, and its u is 0.
    """

    device: int
    x: NDArray[Any]
    u: float
    buffers: NDArray[Any]
    rounds_done: int
    gone: str

    @property
    def z(self) -> NDArray[Any]:
        """The model's parameters, x/u, shape (D,), float64; NaN of a device without mass."""
        parameters: NDArray[Any] = self.x.astype("float64") / self.u
        return parameters


class Models(Mapping[int, DeviceModel]):
    """Final models by device; each is read when it is asked for.

    Args:
        files: of the run; None of a run that has none.
        num_devices: of the run.
    """

    def __init__(self, files: RunFiles | None, num_devices: int = 0) -> None:
        self._files = files
        self._num_devices = num_devices
        names = files.final_model_names() if files is not None else []
        self._names = {number_of(name): name for name in names}

    def __getitem__(self, device: int) -> DeviceModel:
        if device not in self._names:
            place = "" if self._files is None else f"{self._files.place}: "
            raise KeyError(f"{place}no final model of device {device}")
        name = self._names[device]
        assert self._files is not None, "names come from files"
        arrays = self._files.read_final_model_arrays(name)
        return DeviceModel(
            device=device,
            x=arrays["x"],
            u=float(arrays["u"]),
            buffers=arrays["buffers"],
            rounds_done=int(arrays["rounds_done"]),
            gone=str(arrays["gone"]),
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<final models of {len(self)} devices>"

    def check_whole(self) -> None:
        """Refuse a run that lacks the model of a device.

        Raises:
            RunDirectoryError: it does.
        """
        if self._files is None:
            return
        lacking = [device for device in range(self._num_devices) if device not in self._names]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            name = f"models/device-{lacking[0]:06d}.npz"
            raise RunDirectoryError(f"{self._files.place}/{name}{more}: missing; {REMEDY}")

    @property
    def consensus(self) -> DeviceModel:
        """The consensus model: sum(x), sum(u), mean of the statistics.

        Devices without mass, and those that left or died, have no part in it; if none is there any
        more, all that have mass have. The same rule as in evaluations.

        Raises:
            KeyError: the run has no final models.
            RunDirectoryError: a model is missing.
        """
        self.check_whole()
        with_mass = [model for model in self.values() if model.u > 0]
        present = [model for model in with_mass if not model.gone] or with_mass
        if not present:
            raise KeyError("this run has no final models")
        x = present[0].x.astype("float64")
        buffers = present[0].buffers.astype("float64")
        for model in present[1:]:
            x += model.x
            buffers += model.buffers
        return DeviceModel(
            device=CONSENSUS,
            x=x,
            u=sum(model.u for model in present),
            buffers=(buffers / len(present)).astype(present[0].buffers.dtype),
            rounds_done=sum(model.rounds_done for model in present) // len(present),
            gone="",
        )
