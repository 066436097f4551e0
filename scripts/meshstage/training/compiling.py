"""torch.compile as an option that may not change what is trained."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from meshstage.errors import InputError

# Fused kernels reorder float32 sums: 1e-3 of the largest gradient is far above that, and far
# below what a wrong kernel gives. bf16 has 8 bits: three of them are left.
_TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2, "fp64": 1e-9}


def compile_network(
    network: nn.Module,
    choice: str,
    incompatible: str | None,
    device: torch.device,
    precision: str,
    loss_of_one_batch: Callable[[], Tensor],
) -> str:
    """Compile a network in place, and undo it if it then computes something else.

    Returns
    -------
    str
        What became of it, for the metadata; it begins with ``compiled`` or ``eager``.

    Raises
    ------
    InputError
        If ``on`` is asked of a network that cannot be compiled, with the reason.
    """
    if choice == "on" and incompatible:
        raise InputError(
            f"compile is 'on', but this network cannot be compiled ({incompatible}); use off or "
            "auto"
        )
    if choice == "off" or incompatible or (choice == "auto" and device.type != "cuda"):
        return "eager"
    if choice == "on":
        network.compile()
        return "compiled"
    eager = _gradients(network, loss_of_one_batch)
    try:
        network.compile()
        compiled = _gradients(network, loss_of_one_batch)
        worst = max(
            float((a - b).abs().max() / b.abs().max().clamp(min=1e-12))
            for a, b in zip(compiled, eager, strict=True)
        )
    except Exception as error:  # whatever the compiler raises, eager is there
        failure = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    else:
        if worst <= _TOLERANCE[precision]:
            return "compiled"
        failure = f"loss or gradients differ from eager by {worst:.2g} of their size"
    network._compiled_call_impl = None
    torch.compiler.reset()
    return f"eager, since compiling failed ({failure})"


def _gradients(network: nn.Module, loss_of_one_batch: Callable[[], Tensor]) -> list[Tensor]:
    """Give loss and all gradients of one batch, and leave no gradient behind."""
    loss = loss_of_one_batch()
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return [loss.detach(), *(gradient.detach() for gradient in gradients)]
