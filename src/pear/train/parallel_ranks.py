"""``ParallelRanks``: the processes of a data-parallel training, which are the ranks of ``torch.distributed``.

Before ranks exchange anything, they meet (``ParallelRanks.meet``). In a meeting each rank sends a few numbers: whether
it has failed, whether its user has pressed Ctrl-C, and a checksum of its place in the training. A rank that fails takes
part in one more meeting before it ends, so that no other rank waits for it forever. A single process exchanges nothing.
"""

from __future__ import annotations

import signal
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from pear.errors import ProblemError, TrainingError
from pear.losses import PEARLoss
from pear.train.fit_config import FitConfig
from pear.train.model_weights import load_model_weights
from pear.train.run_identity import identity_digest, loss_identity, model_identity
from pear.train.safetensors_file import pack_safetensors, unpack_safetensors
from pear.train.sample_order import Order
from pear.train.samples.features import feature_tensors
from pear.train.samples.loader_samples import LoaderSamples
from pear.train.samples.sample_batch import SampleBatch
from pear.train.samples.sample_source import SampleSource
from pear.train.training_loss import training_loss_counts

T = TypeVar("T")

_NUMBERS = 2  # the largest number of numbers that a rank can send in a meeting


@dataclass
class ParallelRanks:
    """The processes that train one model together.

    The object is a context manager. If a process fails inside the context, all processes end with its error.

    Attributes:
        rank: the number of this process, from 0.
        size: the number of processes.
        device: the device of the small tensors that the processes exchange; None for a single process.

    Example:
        >>> with ParallelRanks() as alone:
        ...     alone.first, alone.meet("the example", 2.0)
        (True, [[2.0]])
    """

    rank: int = 0
    size: int = 1
    device: torch.device | None = None
    _ended: bool = field(default=False, init=False)  # whether other ranks have ended and answer no more
    _interrupted: bool = field(default=False, init=False)
    _handler: Any = field(default=None, init=False)

    @classmethod
    def of(cls, model: nn.Module, wanted: bool) -> ParallelRanks:
        """Return all ranks of the default process group if ``wanted`` is true, otherwise this process alone.

        Raises:
            ProblemError: the group cannot send tensors of the model's device, or the model is a
                ``DistributedDataParallel``, which averages gradients itself.
        """
        if not wanted or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
            return cls()
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise ProblemError(
                "fit averages the gradients of all ranks itself; pass the model without DistributedDataParallel around "
                "it (model.module)"
            )
        backends, own = dist.get_backend_config(), next(model.parameters(), torch.zeros(())).device
        if f"{own.type}:" not in backends:
            raise ProblemError(
                f"the process group talks between devices by {backends}, and the model is on {own}; move the model, or "
                "call init_process_group('gloo') for CPUs, 'nccl' for GPUs"
            )
        device = torch.device("cpu") if "cpu:" in backends else own
        return cls(dist.get_rank(), dist.get_world_size(), device)

    @property
    def first(self) -> bool:
        """Whether this process is rank 0, which validates, writes checkpoints and reports progress."""
        return self.rank == 0

    def __enter__(self) -> ParallelRanks:
        """Return this object. If there are several ranks, a first Ctrl-C now takes effect at the next meeting.

        All ranks then stop at the same place. A handler of Ctrl-C that the user has set stays in place.
        """
        main = threading.current_thread() is threading.main_thread()
        if self.device is not None and main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the error of this rank to all other ranks; without an error, wait until they leave the context, too."""
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if self.device is None or self._ended:
            return
        if error is None:
            self.meet("the end")
            return
        error.add_note(f"on rank {self.rank} of {self.size}")
        self._gather([1.0, 0.0, 0.0])
        self._gather_texts(f"{type(error).__name__}: {error}")

    def meet(self, place: str, *numbers: float) -> list[list[float]]:
        """Wait until all ranks call this method, and exchange numbers.

        Args:
            place: the place in the training, in words, which must be the same on all ranks.
            *numbers: at most two numbers (``_NUMBERS``), which this rank sends to all ranks.

        Returns:
            A list for each rank, in the order of the ranks, with the numbers that the rank sent.

        Raises:
            TrainingError: a rank has failed, has ended, or is at another place.
            KeyboardInterrupt: a user has pressed Ctrl-C on one of the ranks.
        """
        if self.device is None:
            return [list(numbers)]
        rows = self._gather([0.0, float(self._interrupted), float(zlib.crc32(place.encode())), *numbers])
        failed = [bool(row[0]) for row in rows]
        if any(failed) or len({row[2] for row in rows}) > 1:
            self._stop(place, failed)
        if any(row[1] for row in rows):
            self._interrupted = False
            raise KeyboardInterrupt
        return [row[3 : 3 + len(numbers)] for row in rows]

    def _stop(self, place: str, failed: list[bool]) -> None:
        """Raise a TrainingError that says which ranks failed and why; if none failed, at which places the ranks are.

        Args:
            place: the place of this rank.
            failed: for each rank, whether it failed.
        """
        texts = self._gather_texts(place)
        self._ended = True
        if any(failed):
            said = [f"rank {k} of {self.size} failed: {texts[k]}" for k in range(self.size) if failed[k]]
            raise TrainingError(f"{'; '.join(said)}. All ranks stop")
        places = "; ".join(f"rank {k} is at {text}" for k, text in enumerate(texts))
        raise TrainingError(
            f"the ranks are not at the same place: {places}. Give every rank the same samples, loss, model and config, "
            "and a DataLoader that shuffles a generator with the same seed"
        )

    def from_rank_0(self, place: str, find: Callable[[], T]) -> T:
        """Call ``find`` on rank 0 alone, and return its result on all ranks. All ranks must call this method.

        Args:
            place: the place in the training, in words, as in ``meet``.
            find: a function without arguments; its result must be picklable.
        """
        if self.device is None:
            return find()
        value = find() if self.first else None
        self.meet(place)
        found: T = self._broadcast(value, 0)
        return found

    def content_of_rank_0(self, place: str, content: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Call ``content`` on rank 0 alone, and return its values on all ranks, with tensors on the CPU.

        The values must have types that ``pack_safetensors`` supports.
        """
        return unpack_safetensors(self.from_rank_0(place, lambda: pack_safetensors(place, 1, content())))

    def check_same_start(self, model: nn.Module, loss: Any, config: FitConfig) -> None:
        """Check that all ranks have the same model, loss and config, and copy the weights of rank 0 to all ranks.

        Raises:
            TrainingError: two ranks differ.
        """
        if self.size > 1:
            self.meet(f"a model {model_identity(model)}")
            self.meet(f"a loss {loss_identity(loss)}")
            self.meet(str(replace(config, seed=0)))  # the order is drawn from the generator of rank 0
            self.copy_weights(model)

    def check_same_samples(self, samples: SampleSource) -> None:
        """Check that all ranks have the same samples.

        Of a DataLoader only the length is compared, of Parquet files the length and the samples that are read first.

        Raises:
            TrainingError: two ranks differ.
            ProblemError: the samples come from a DataLoader with a ``DistributedSampler``.
        """
        if self.size == 1:
            return
        if isinstance(samples, LoaderSamples):
            if isinstance(samples.loader.sampler, DistributedSampler):
                raise ProblemError(
                    "the DataLoader has a DistributedSampler, and fit splits every batch over the ranks itself; give "
                    "all ranks the same loader, with sampler= left out, and where it shuffles a generator of the same "
                    "seed"
                )
            self.meet(f"{len(samples)} samples of a DataLoader")
            return
        digest = identity_digest(feature_tensors(samples.look().features), samples.costs)
        self.meet(f"{len(samples)} samples, of which the fingerprint is {digest}")

    def check_same_order(self, order: Order) -> Order:
        """Return the order as a function that raises TrainingError if two ranks draw different orders."""
        if self.size == 1:
            return order

        def compared(count: int, generator: torch.Generator) -> Tensor:
            rows = order(count, generator)
            self.meet(f"samples in the order {identity_digest(rows)}")
            return rows

        return compared

    def copy_weights(self, model: nn.Module) -> None:
        """Copy the weights of rank 0, including buffers such as the statistics of a batch norm, to all ranks."""
        if self.size > 1:
            content = self.content_of_rank_0("the weights", lambda: {"weights": dict(model.state_dict())})
            load_model_weights(model, content["weights"])

    def add_loss_counts(self, loss: Any, before: tuple[int, int]) -> None:
        """Add what the losses of the other ranks have counted in the training to the counts of this rank's loss.

        The counts are those of ``training_loss_counts``. Afterwards they are the same on all ranks.

        Args:
            loss: the loss of this rank.
            before: the result of ``training_loss_counts`` before the training.
        """
        own = [now - then for now, then in zip(training_loss_counts(loss), before, strict=True)]
        samples, reused = map(sum, zip(*self.meet("the counters of the loss", *own), strict=True))
        if isinstance(loss, PEARLoss):
            loss.count(int(samples) - own[0], int(reused) - own[1])

    def part_of_batch(self, batch: SampleBatch) -> SampleBatch:
        """Return the part of a batch that this rank processes: about 1/size of its rows, which are consecutive."""
        if self.size == 1:
            return batch
        return batch.only(torch.arange(len(batch.costs), device=batch.costs.device).tensor_split(self.size)[self.rank])

    def mean(self, place: str, value: Tensor, weight: float, parameters: list[nn.Parameter], summed: bool) -> Tensor:
        """Combine the losses and gradients of all ranks' parts of a batch into the loss and gradient of the batch.

        Args:
            place: the place in the training, as in ``meet``.
            value: the loss of this rank's part, a scalar. The gradients of this loss are in the ``grad`` of the
                parameters, and are replaced there by the gradients of the whole batch.
            weight: the number of samples over which ``value`` is the mean; not used for a sum.
            parameters: the trained parameters.
            summed: whether the loss is a sum over the samples; the parts are then added and not averaged.

        Returns:
            The loss of the batch, a scalar.
        """
        if self.device is None:
            return value
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.layout is not torch.strided:
                raise TrainingError(
                    f"a gradient is {parameter.grad.layout}, and several ranks add dense ones; make its layer with "
                    "sparse=False"
                )
        parts = self.meet(place, weight, float(value))
        total = max(sum(count for count, _ in parts), 1.0)
        for kind in dict.fromkeys((one.dtype, one.device) for one in parameters):
            some = [one for one in parameters if (one.dtype, one.device) == kind]
            self._add_gradients(some, 1.0 if summed else weight / total)
        if summed:
            return value.new_tensor(sum(own for _, own in parts))
        return value.new_tensor(sum(count * own for count, own in parts if count) / total)

    def _add_gradients(self, parameters: list[nn.Parameter], share: float) -> None:
        """Replace each gradient by the sum of share · gradient over all ranks, which exchange a single message.

        If a parameter has no gradient on any rank, its gradient stays None.
        """
        there = parameters[0].new_tensor([parameter.grad is not None for parameter in parameters])
        own = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
        flat = torch.cat([there, nn.utils.parameters_to_vector(own).detach() * share])
        self._talk(lambda: dist.all_reduce(flat))
        counts, *sums = flat.split([len(parameters), *(one.numel() for one in parameters)])
        for parameter, part, count in zip(parameters, sums, counts.tolist(), strict=True):
            parameter.grad = part.view_as(parameter) if count else None

    def _gather(self, own: list[float]) -> list[list[float]]:
        """Return a list for each rank with the numbers that the rank sent, filled up with zeros to a common length."""
        mine = torch.tensor(own + [0.0] * (3 + _NUMBERS - len(own)), dtype=torch.float64).to(self.device)
        rows = [torch.empty_like(mine) for _ in range(self.size)]
        self._talk(lambda: dist.all_gather(rows, mine))
        found: list[list[float]] = torch.stack(rows).tolist()
        return found

    def _gather_texts(self, own: str) -> list[str]:
        """Return the text that each rank sent, in the order of the ranks."""
        return [self._broadcast(own, rank) for rank in range(self.size)]

    def _broadcast(self, value: Any, rank: int) -> Any:
        """Send the ``value`` of rank number ``rank`` to all ranks, and return it. All ranks must call this method."""
        box = [value]
        self._talk(lambda: dist.broadcast_object_list(box, rank, device=self.device))
        return box[0]

    def _talk(self, call: Callable[[], Any]) -> None:
        """Call a collective operation of torch; raise ``TrainingError`` if another rank has ended."""
        try:
            call()
        except RuntimeError as error:  # what every backend of torch raises
            self._ended = True
            raise TrainingError(
                f"rank {self.rank} of {self.size} has lost the others, because one has ended or was waited for longer "
                f"than the timeout of init_process_group allows: {error}"
            ) from error

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C: the first is noted for the next meeting, and the second raises KeyboardInterrupt."""
        if self._interrupted:  # the second Ctrl-C
            signal.default_int_handler(number, frame)
        self._interrupted = True
