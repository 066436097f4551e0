"""PhysicsNeMo's GeoTransolver: a Transolver that is told of geometry and sample in each block."""

from meshstage.config.networks import NETWORKS
from meshstage.networks.geotransolver import TemplateGeoTransolver, build_geotransolver
from meshstage.training.transolver import TrainPhysicsNeMoTransolver


class TrainPhysicsNeMoGeoTransolver(TrainPhysicsNeMoTransolver):
    """A Transolver whose slices attend to the geometry, and to scores and stage, in each block."""

    kind = NETWORKS["geotransolver"]
    model_tag = kind.tag
    architecture_name = "physicsnemo.models.geotransolver.GeoTransolver"

    def build_model(self, in_features: int, out_features: int) -> TemplateGeoTransolver:
        """Make a GeoTransolver with fresh weights."""
        return build_geotransolver(
            in_features, out_features, **{name: getattr(self, name) for name in self.kind.options}
        )
