"""Ranks of one training: joined as their launcher numbers them, or one process alone."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from meshstage.errors import ContinueLater, InputError
from meshstage.launch.ranks import Rank, this_rank

T = TypeVar("T")

_trainings = count()  # of this process, as of every other rank


@dataclass(frozen=True)
class DistributedContext:
    """Which rank this process is, and where it computes.

    Parameters
    ----------
    device : torch.device
    rank, local_rank, world_size : int
        As the launcher numbers them; 0, 0, 1 for a process alone.
    """

    device: torch.device = torch.device("cpu")  # noqa: RUF009  devices are immutable
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this rank writes, logs and decides."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        """Whether there are other ranks."""
        return self.world_size > 1

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.is_distributed:
            dist.barrier()

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over ranks, in place; the same bits on every rank."""
        if self.is_distributed:
            dist.all_reduce(tensor)
        return tensor

    def any_of(self, flags: int) -> int:
        """Join bit flags of all ranks, on the host."""
        if not self.is_distributed:
            return flags
        # Gloo on the host, also beside NCCL: no kernel waits for this.
        bits = torch.tensor([flags >> bit & 1 for bit in range(8)], dtype=torch.int32)
        dist.all_reduce(bits, op=dist.ReduceOp.MAX)
        return sum(int(on) << bit for bit, on in enumerate(bits.tolist()))

    def decide(self, function: Callable[[], T]) -> T:
        """Call on rank 0 alone and give every rank its result, or its exception.

        Raises
        ------
        InputError, ContinueLater
            Whatever rank 0 raised, on every rank: no rank waits for one that has left.
        """
        if not self.is_distributed:
            return function()
        outcome: list[Any] = [None]
        if self.is_main:
            try:
                outcome = [(True, function())]
            except (InputError, ContinueLater) as error:
                outcome = [(False, error)]
        dist.broadcast_object_list(outcome, src=0, device=torch.device("cpu"))
        good, value = outcome[0]
        if not good:
            raise value
        return value


@contextmanager
def distributed_context(device: str = "auto") -> Iterator[DistributedContext]:
    """Set up this process as a rank of what launched it, or alone.

    Parameters
    ----------
    device : "auto", "cpu" or "cuda"
        ``auto`` takes the rank's GPU where there is one.

    Raises
    ------
    InputError
        If CUDA is asked for and not there, a node has fewer GPUs than ranks, or the ranks cannot
        meet.
    """
    launched = this_rank(os.environ)
    if launched is None:
        yield DistributedContext(choose_device(device))
        return
    where = choose_device(device, launched.gpu)
    context = DistributedContext(where, launched.rank, launched.local_rank, launched.world_size)
    if not context.is_distributed:
        yield context
        return
    _join(launched, where)
    try:
        yield context
    except (InputError, ContinueLater):
        # Raised on all ranks alike: they leave together, in good order.
        dist.destroy_process_group()
        raise
    except BaseException:
        # The others hang in a collective: do not wait for them, let the launcher end them.
        raise
    else:
        dist.destroy_process_group()


def _join(launched: Rank, device: torch.device) -> None:
    """Make the process group of one training.

    Raises
    ------
    InputError
        If not all ranks come to the meeting.
    """
    # Rank 0 may load and verify a large checkpoint while the others wait.
    patience = timedelta(minutes=30)
    try:
        rank, size = launched.rank, launched.world_size
        numbers = {} if launched.meeting == "env://" else {"rank": rank, "world_size": size}
        store, _, _ = next(rendezvous(launched.meeting, timeout=patience, **numbers))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            # A group of its own for each training of one process: ranks of the next would find
            # the addresses of the last in the store, and wait for them for ever.
            store=dist.PrefixStore(f"meshstage_{next(_trainings)}", store),
            rank=rank,
            world_size=size,
            timeout=patience,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, OSError, ValueError) as error:
        reason = (str(error) or repr(error)).splitlines()[0][:200]
        raise InputError(
            f"{launched.launcher} cannot meet at {launched.meeting} ({reason}); start all ranks "
            "together, set MASTER_ADDR and MASTER_PORT, or use torchrun"
        ) from error


def choose_device(choice: str, local_rank: int = 0) -> torch.device:
    """Turn ``auto``, ``cpu`` or ``cuda`` into a device, the rank's own GPU among several.

    Raises
    ------
    InputError
        If CUDA is asked for and not there, or this rank has no GPU of its own.
    """
    if choice == "cpu" or (choice == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("--device cuda, but PyTorch finds no GPU here; use --device cpu or auto")
    if local_rank >= torch.cuda.device_count():
        raise InputError(
            f"local rank {local_rank} has no GPU of its own: this node shows "
            f"{torch.cuda.device_count()}; start as many ranks per node as it has GPUs"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
