"""PhysicsNeMo's FLARE: a Transolver that gathers points into learned queries."""

from meshstage.config.networks import NETWORKS
from meshstage.networks.transformer import TemplateFLARE, build_flare
from meshstage.training.transolver import TrainPhysicsNeMoTransolver


class TrainPhysicsNeMoFLARE(TrainPhysicsNeMoTransolver):
    """A Transolver with another attention; ``num_slices`` are its learned queries."""

    kind = NETWORKS["flare"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.flare.FLARE"

    def build_model(self, in_features: int, out_features: int) -> TemplateFLARE:
        """Make a FLARE with fresh weights."""
        return build_flare(
            in_features, out_features, **{name: getattr(self, name) for name in self.kind.options}
        )
