"""Train a GeoTransolver, or resume a run that was cut short."""

import train_command
from meshstage.config.networks import NETWORKS

if __name__ == "__main__":
    train_command.run(__doc__, NETWORKS["geotransolver"])
