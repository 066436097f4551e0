"""Judge a cohort before anything is trained on it."""
