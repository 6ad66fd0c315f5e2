"""Data-parallel training: what the ranks of ``torch.distributed`` say to each other. A process alone says nothing.

Whatever is exchanged begins with ``Ranks.meet``, one small sum of the same size at every place. A rank that fails,
wherever it is, takes part in the next one with its flag up, so that no rank waits for one that has left.
"""

from __future__ import annotations

import signal
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pear.errors import ProblemError
from pear.train import archive
from pear.train.errors import TrainingError
from pear.train.samples.memory import Batch

NUMBERS = 3
"""So many numbers go with every meeting."""
_MARKS = 1 << 26  # the sum of all ranks' places is a whole number below, so that its square is exact in float64
_TEXT = 4096  # bytes of a message


@dataclass
class Ranks:
    """The processes that train together, as this one sees them: a context, in which a failure of one ends all.

    Attributes:
        rank, size: this one, and how many there are.
        device: of the small tensors that are exchanged; None for a process alone, which exchanges nothing.

    Example:
        >>> with Ranks() as alone:
        ...     alone.first, alone.meet("the example", 2.0)
        (True, [2.0, 0.0, 0.0])
    """

    rank: int = 0
    size: int = 1
    device: torch.device | None = None
    _ended: bool = field(default=False, init=False)  # nobody answers any more
    _interrupted: bool = field(default=False, init=False)
    _handler: Any = field(default=None, init=False)

    @classmethod
    def of(cls, model: nn.Module, wanted: bool) -> Ranks:
        """All ranks of the default process group, where there are several and that is wanted.

        Raises:
            ProblemError: the group cannot move the model's tensors, or the model averages gradients itself.
        """
        if not wanted or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return cls()
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise ProblemError(
                "fit averages the gradients of all ranks itself; pass the model without DistributedDataParallel around "
                "it (model.module)"
            )
        spoken, own = dist.get_backend_config(), next(model.parameters(), torch.zeros(())).device
        if f"{own.type}:" not in spoken:
            raise ProblemError(
                f"the process group talks between devices by {spoken}, and the model is on {own}; move the model, or "
                "call init_process_group('gloo') for CPUs, 'nccl' for GPUs"
            )
        device = torch.device("cpu") if "cpu:" in spoken else own
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which validates, writes checkpoints and reports."""
        return self.rank == 0

    def __enter__(self) -> Ranks:
        """Ctrl-C waits for the next meeting from now on, so that all ranks stop at the same place."""
        main = threading.current_thread() is threading.main_thread()
        if self.device is not None and main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave together; an error of this rank is told to the others."""
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self.device is None or self._ended:
            return
        if error is None:
            self.meet("the end")
            return
        error.add_note(f"on rank {self.rank} of {self.size}")
        room = self._room()
        room[self.rank] = 1.0
        self._sum(room)
        self._texts(f"{type(error).__name__}: {error}")

    def meet(self, what: str, *numbers: float) -> list[float]:
        """Wait for all ranks, which must be at the same place.

        Args:
            what: the place, in words; it must be the same on all ranks.
            *numbers: at most ``NUMBERS``.

        Returns:
            The sums of the numbers over the ranks, filled up with zeros.

        Raises:
            TrainingError: a rank has failed, is at another place, or is gone.
            KeyboardInterrupt: one was told to stop.
        """
        if self.device is None:
            return [*map(float, numbers), *[0.0] * (NUMBERS - len(numbers))]
        room, mark = self._room(), zlib.crc32(what.encode()) % (_MARKS // self.size)
        mine = [mark, mark**2, float(self._interrupted), *numbers]
        room[self.size : self.size + len(mine)] = torch.tensor(mine, dtype=torch.float64)
        found = self._sum(room)
        failed, (marks, squares, interrupts, *sums) = found[: self.size], found[self.size :]
        if any(failed):
            said = self._texts("")
            told = "; ".join(
                f"rank {rank} of {self.size} failed: {said[rank]}" for rank, flag in enumerate(failed) if flag
            )
            self._ended = True
            raise TrainingError(f"{told}. All ranks stop")
        if self.size * squares != marks**2:
            self._apart(what)
        if interrupts:
            self._interrupted = False
            raise KeyboardInterrupt
        return sums

    def once(self, what: str, find: Callable[[], Iterable[float]]) -> list[float]:
        """Numbers that rank 0 finds, on all ranks."""
        return self.meet(what, *(find() if self.first else ()))

    def same(self, what: str, content: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """What rank 0 has, on all ranks: of types that a file of PEAR may hold."""
        if self.device is None:
            return content()
        data = archive.packed(what, 1, content()) if self.first else b""
        size = int(self.meet(what, len(data))[0])
        room = torch.frombuffer(bytearray(data or size), dtype=torch.uint8).to(self.device)
        self._talk(lambda: dist.broadcast(room, 0))
        return archive.unpacked(room.cpu().numpy().tobytes())

    def part(self, batch: Batch) -> Batch:
        """This rank's samples of a batch: one run of rows each, as equal as can be; the last ranks may have none."""
        if self.size == 1:
            return batch
        return batch.only(torch.arange(len(batch.costs), device=batch.costs.device).tensor_split(self.size)[self.rank])

    def mean(self, what: str, value: Tensor, weight: float, parameters: list[nn.Parameter], summed: bool) -> Tensor:
        """The loss of a whole batch, from those of the ranks' parts; the parameters get its gradient.

        Args:
            what: the place.
            value: of this rank's part, a scalar; its gradients are in the parameters.
            weight: of the part in the mean.
            parameters: that are trained.
            summed: True where the loss adds the samples up, so that the parts are added, too.
        """
        if self.device is None:
            return value
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                raise TrainingError(
                    f"a gradient is {parameter.grad.layout}, and several ranks add dense ones; make its layer with "
                    "sparse=False"
                )
        own = float(value)
        weights, total, added = self.meet(what, weight, weight * own if weight else 0.0, own)
        share = 1.0 if summed else weight / max(weights, 1.0)
        groups: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in parameters:
            groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for some in groups.values():
            self._sum_gradients(some, share)
        return value.new_tensor(added if summed else total / max(weights, 1.0))

    def _sum_gradients(self, parameters: list[nn.Parameter], share: float) -> None:
        """Add up this share of each rank's gradients, in one buffer; a parameter that no rank has one of keeps None."""
        there = parameters[0].new_tensor([parameter.grad is not None for parameter in parameters])
        flat = [torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1) for p in parameters]
        room = torch.cat([there, *flat]).detach()
        room[len(parameters) :] *= share
        self._talk(lambda: dist.all_reduce(room))
        sums = room[len(parameters) :].split([parameter.numel() for parameter in parameters])
        for parameter, some, count in zip(parameters, sums, room[: len(parameters)].tolist(), strict=True):
            parameter.grad = some.view_as(parameter) if count else None

    def _room(self) -> Tensor:
        """A flag for each rank; the place, its square, the interrupts; the numbers."""
        return torch.zeros(self.size + 3 + NUMBERS, dtype=torch.float64)

    def _sum(self, room: Tensor) -> list[float]:
        there = room.to(self.device)
        self._talk(lambda: dist.all_reduce(there))
        found: list[float] = there.tolist()
        return found

    def _texts(self, own: str) -> list[str]:
        """What each rank says."""
        room = torch.tensor([*own.encode()[:_TEXT]], dtype=torch.uint8)
        mine = torch.nn.functional.pad(room, (0, _TEXT - len(room))).to(self.device)
        all_rooms = [torch.empty_like(mine) for _ in range(self.size)]
        self._talk(lambda: dist.all_gather(all_rooms, mine))
        return [bytes(room.tolist()).rstrip(b"\0").decode(errors="ignore") for room in all_rooms]

    def _apart(self, what: str) -> None:
        places = "; ".join(f"rank {rank} is at {text}" for rank, text in enumerate(self._texts(what)))
        self._ended = True
        raise TrainingError(
            f"the ranks are not at the same place: {places}. "
            "Give every rank the same samples, loss, model and config, and a DataLoader that shuffles a generator with "
            "the same seed"
        )

    def _talk(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:  # what every backend of torch raises
            self._ended = True
            raise TrainingError(
                f"rank {self.rank} of {self.size} has lost the others, because one has ended or was waited for longer "
                f"than the timeout of init_process_group allows: {error}"
            ) from error

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:  # the second Ctrl-C
            signal.default_int_handler(number, frame)
        self._interrupted = True


def fingerprint(*tensors: Tensor) -> str:
    """Eight digits that differ where tensors do, but by chance."""
    found = 0
    for tensor in tensors:
        found = zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
