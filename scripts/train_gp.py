"""Fit a Gaussian process on ingested subjects: a motion model that needs no epochs and no GPU."""

import train_command
from meshstage.config.networks import NETWORKS

if __name__ == "__main__":
    train_command.run(__doc__, NETWORKS["gp"])
