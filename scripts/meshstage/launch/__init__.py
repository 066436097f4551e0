"""How processes of a training are started: plan, processes, SLURM."""
