"""Networks in PhysicsNeMo's own classes, for readers that do not have this package."""

from pathlib import Path

from physicsnemo.core import Module
from torch import nn


def plain_copy(network: nn.Module) -> Module | None:
    """Give a network as an instance of PhysicsNeMo's own class, with the same weights.

    Parameters
    ----------
    network : nn.Module
        Of a class of PhysicsNeMo's, or of one of `meshstage.networks` that extends one.

    Returns
    -------
    physicsnemo.core.Module or None
        None if it is neither. It may share the weights.
    """
    if not isinstance(network, Module):
        return None
    if type(network).__module__.startswith("physicsnemo."):
        return network
    base = type(network).__bases__[0]
    if not base.__module__.startswith("physicsnemo."):
        return None
    # PhysicsNeMo notes the arguments of every network, to write them into its own files.
    plain: Module = base(**network._args["__args__"])
    plain.load_state_dict(network.state_dict())
    return plain.eval()


def read_plain(path: Path) -> Module:
    """Read a network from a ``.mdlus`` file, as PhysicsNeMo does."""
    network: Module = Module.from_checkpoint(str(path))
    return network
