"""Networks in PhysicsNeMo's own classes, for readers that do not have this package."""

from pathlib import Path

from physicsnemo.core import Module
from torch import nn

from meshstage.networks.mgn import TemplateMeshGraphNet
from meshstage.networks.mlp import TemplateFullyConnected


def plain_copy(network: nn.Module) -> Module:
    """Copy a network into the PhysicsNeMo class that it extends.

    Parameters
    ----------
    network : TemplateMeshGraphNet or TemplateFullyConnected

    Returns
    -------
    physicsnemo.models.meshgraphnet.MeshGraphNet or physicsnemo.models.mlp.FullyConnected
        With the same arguments and weights.
    """
    assert isinstance(network, TemplateMeshGraphNet | TemplateFullyConnected)
    base = type(network).__bases__[0]
    # PhysicsNeMo notes the arguments of every network, to write them into its own files.
    plain: Module = base(**network._args["__args__"])
    plain.load_state_dict(network.state_dict())
    return plain.eval()


def read_plain(path: Path) -> Module:
    """Read a network from a ``.mdlus`` file, as PhysicsNeMo does."""
    network: Module = Module.from_checkpoint(str(path))
    return network
