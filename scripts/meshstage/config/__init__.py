"""What people write: config.yaml, the tables of runs and subjects, the registry of networks."""
