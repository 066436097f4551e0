"""Population motion models that need no network.

What is where
-------------
model
    `MotionModel`: ``fit(train, statistics, cycle)``, ``predict(scores, stages)``, ``to_arrays`` and
    ``from_arrays`` (plain arrays, for ``np.savez``).
cycle
    Closed and open cycles: interpolation between stages, features of a stage.
stage_mean, ridge, gaussian_process
    The models. `GaussianProcess` also gives ``deviation(scores, stages)``, per point.
modes
    `CycleModes`: mean and principal modes of whole cycles, as the Gaussian process moves them.
baselines
    The table of the models that every judgement compares with; fitting, writing, reading them.
residuals
    What a prediction leaves of the truth.

In another framework
--------------------
Everything is arithmetic on the arrays of ``to_arrays``, so that a network can hold them as fixed
tensors. With ``x = (scores - pca_mean) / pca_scale`` and ``w(stage)`` the weights of linear
interpolation between ``stages`` (`cycle.interpolation`), piecewise linear in the stage:

stage mean
    ``w(stage) @ values``
ridge
    ``motion_mean + (features(x, stage) @ weights.T + intercept) @ modes``
modes with coefficients ``c``
    ``(w(stage) @ (mean + tensordot(c, modes, 1))) @ fields``
Gaussian process
    the modes with ``c_m = scale_m shrink k_m(x, train_scores) @ alpha_m``, where
    ``k_m(a, b) = linear_m a . b + rbf_m exp(-|(a - b) / length_m|^2 / 2)``; ``alpha`` is a
    property of the fitted model. Where the ridge was taken ``rbf`` is zero, where the mean, both.
"""
