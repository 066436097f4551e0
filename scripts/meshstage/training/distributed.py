"""Ranks of one training: set up from torchrun's variables, and nothing else."""

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

T = TypeVar("T")

_trainings = count()  # of this process, as of every other rank


@dataclass(frozen=True)
class DistributedContext:
    """Which rank this process is, and where it computes.

    Parameters
    ----------
    device : torch.device
    rank, local_rank, world_size : int
        As torchrun numbers them; 0, 0, 1 for a process alone.
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
    """Set up this process as a rank of torchrun, or alone where torchrun did not start it.

    Parameters
    ----------
    device : "auto", "cpu" or "cuda"
        ``auto`` takes the rank's GPU where there is one.

    Raises
    ------
    InputError
        If CUDA is asked for and not there, or a node has fewer GPUs than ranks.
    """
    # SLURM's variables say nothing here: an interactive allocation sets them too.
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    rank, local_rank, world_size = (
        (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        if launched
        else (0, 0, 1)
    )
    where = choose_device(device, local_rank)
    context = DistributedContext(where, rank, local_rank, world_size)
    if not context.is_distributed:
        yield context
        return
    # A group of its own for each training of one process: ranks of the next would find the
    # addresses of the last in torchrun's store, and wait for them for ever.
    store, _, _ = next(rendezvous("env://"))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo",
        store=dist.PrefixStore(f"meshstage_{next(_trainings)}", store),
        rank=rank,
        world_size=world_size,
        # Rank 0 may load and verify a large checkpoint while the others wait.
        timeout=timedelta(minutes=30),
        device_id=where if where.type == "cuda" else None,
    )
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
            f"{torch.cuda.device_count()}; start as many ranks a node as it has GPUs"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
