"""PhysicsNeMo's networks over one template mesh that all samples share.

The only modules that import physicsnemo, which takes 5 to 20 s.
"""

from meshstage.networks.graph import TemplateGraph
from meshstage.networks.mgn import TemplateMeshGraphNet, build_mesh_graph_net
from meshstage.networks.mlp import TemplateFullyConnected, build_fully_connected

__all__ = [
    "TemplateFullyConnected",
    "TemplateGraph",
    "TemplateMeshGraphNet",
    "build_fully_connected",
    "build_mesh_graph_net",
]
