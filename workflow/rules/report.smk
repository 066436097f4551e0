# What people look at: figures, the 3-D page, the table of all runs.
#
# In:  models, evaluations, baselines.
# Out: figures/ below results/{cohort}.
