"""Train a MeshGraphNet with a strain energy in its loss, or go on with a run that was cut short."""

import train_command
import train_mgn

SETTERS = (
    "mu_kpa",
    "lambda_lame_kpa",
    "lambda_physics",
    "lambda_volume",
    "lambda_physics_warmup",
    "mu_array",
    "on_bad_elements",
)


def make_trainer() -> "train_command.TrainPhysicsNeMoBase":
    """Import late: PhysicsNeMo takes seconds, and `--help` should not."""
    from meshstage.training.physics import TrainPhysicsNeMoPhysicsInformedMotion

    return TrainPhysicsNeMoPhysicsInformedMotion()


if __name__ == "__main__":
    parser = train_command.new_parser(__doc__)
    train_mgn.add_network(parser)
    add = parser.add_argument_group("physics").add_argument
    add("--mu-kpa", type=float, help="shear modulus (10)")
    add("--lambda-lame-kpa", type=float, help="Lamé's first parameter (100)")
    add("--lambda-physics", type=float, help="weight of the strain energy density, 1/kPa (1e-4)")
    add("--lambda-volume", type=float, help="weight of the mean of (J - 1)^2 (1e-3)")
    add("--lambda-physics-warmup", type=int, help="epochs in which both weights rise from 0 (0)")
    add("--mu-array", metavar="NAME", help="cell array of the template: shear modulus by region")
    add(
        "--on-bad-elements",
        choices=["error", "drop"],
        help="what becomes of inverted and flat tetrahedra of a reference (error)",
    )
    train_command.run(parser, make_trainer, (*train_mgn.SETTERS, *SETTERS))
