"""Export a trained model as one file that runs without PhysicsNeMo, PyG and this package."""

import copy
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from meshstage.config.networks import is_plain
from meshstage.errors import InputError, Problem
from meshstage.files import atomic
from meshstage.prediction.predictor import Predictor, forward_at

ONNX_OPSET = 18  # the first whose ScatterElements can add, which averages over edges

# Of the target scale: some 20 float32 roundings, where another order of sums makes a few.
TOLERANCE = 1e-5


class BakedPredictor(nn.Module):
    """A model with template and statistics in it: raw scores and stages in, targets out.

    Parameters
    ----------
    predictor : Predictor
        On the CPU.
    """

    coordinates: Tensor
    pca_mean: Tensor
    pca_scale: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.network = copy.deepcopy(predictor.network)
        self.method = copy.deepcopy(predictor.method)
        # What the method put on the device, a graph for one, is traced as a part of this module.
        for name, module in vars(self.method).items():
            if isinstance(module, nn.Module):
                for part in module.modules():
                    for key, tensor in list(part.named_buffers(recurse=False)):
                        setattr(part, key, tensor.clone())  # files keep no shared storage
                # Not called `graph`: a traced module has an attribute of that name.
                self.add_module(f"template_{name.strip('_')}", module)
        self.register_buffer("coordinates", self.method.inputs.coordinates)
        statistics = predictor.statistics
        for name in ("pca_mean", "pca_scale"):
            values = torch.tensor(getattr(statistics, name), dtype=torch.float64)
            self.register_buffer(name, values)
        self.target_scale = statistics.target_scale
        self.eval().requires_grad_(False)

    def forward(self, pca: Tensor, stage: Tensor) -> Tensor:
        """Predict a batch.

        Parameters
        ----------
        pca : (B, n_pca) float32 tensor, standard deviations
        stage : (B,) float32 tensor in [0, 1]

        Returns
        -------
        (B, n_points, n_target) float32 tensor, in the targets' units
        """
        scores = ((pca.double() - self.pca_mean) / self.pca_scale).float()
        targets = forward_at(self.method, self.network, self.coordinates, scores, stage)
        return (targets * self.target_scale).float()


def export_model(predictor: Predictor, path: Path) -> str:
    """Write a model as one file and check what it predicts.

    Parameters
    ----------
    predictor : Predictor
    path : Path
        Its ending tells the kind: ``.pt2`` is read by ``torch.export.load``, ``.onnx`` by ONNX
        runtimes; both take ``pca`` (B, n_pca) and ``stage`` (B,), float32, and give ``targets``
        (B, n_points, n_target). ``.mdlus`` is read by ``physicsnemo.Module.from_checkpoint``: the
        network alone, which takes normalised node features.

    Returns
    -------
    str
        What was found when the file was read back.

    Raises
    ------
    InputError
        If the ending is another, a package is missing, or the file predicts something else.
    """
    if path.suffix not in _WRITERS:
        endings = ", ".join(_WRITERS)
        raise InputError(Problem("no kind of export by its ending", f"use {endings}", str(path)))
    with atomic(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of exporters, about their own inner workings
        return _WRITERS[path.suffix](predictor, temporary)


def _write_torch(predictor: Predictor, path: Path) -> str:
    stream = io.BytesIO()  # a file's name would go into the archive, and this one is temporary
    torch.export.save(_trace(predictor), stream)
    path.write_bytes(stream.getvalue())
    module = torch.export.load(path).module()
    return _compare(predictor, lambda pca, stage: module(pca, stage).numpy())


def _write_onnx(predictor: Predictor, path: Path) -> str:
    try:
        import onnxruntime  # type: ignore[import-untyped]
        import onnxscript  # type: ignore[import-untyped]  # noqa: F401  the exporter needs it
    except ImportError as error:
        what, todo = f"{error.name} is not installed", "pip install onnx onnxscript onnxruntime"
        raise InputError(Problem(what, todo)) from None
    for name in ("onnxscript", "onnx_ir"):
        logging.getLogger(name).setLevel(logging.ERROR)  # a line per rewritten node
    try:
        program = torch.onnx.export(
            _trace(predictor),
            input_names=["pca", "stage"],
            output_names=["targets"],
            opset_version=ONNX_OPSET,
            dynamo=True,
            verbose=False,
        )
    except torch.onnx.OnnxExporterError as error:
        name = type(predictor.network).__name__
        what = f"torch cannot write a {name} as ONNX"
        raise InputError(Problem(what, "export it as .pt2")) from error
    assert program is not None, "the exporter returns a program"
    program.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return _compare(
        predictor,
        lambda pca, stage: session.run(None, {"pca": pca.numpy(), "stage": stage.numpy()})[0],
    )


def _write_physicsnemo(predictor: Predictor, path: Path) -> str:
    from meshstage.networks.plain import plain_copy, read_plain

    plain = plain_copy(predictor.network)
    if plain is None:
        what = f"a {type(predictor.network).__name__} is none of PhysicsNeMo's own networks"
        raise InputError(Problem(what, "export it as .pt2 or .onnx", str(path)))
    if not is_plain(predictor.method.tag):
        what = "the network alone is not this model, which has a base, modes or an encoded stage"
        raise InputError(Problem(what, "export it as .pt2 or .onnx", str(path)))
    plain.save(str(path))
    weights, read = predictor.network.state_dict(), read_plain(path).state_dict()
    if weights.keys() != read.keys() or any(not weights[k].equal(read[k]) for k in weights):
        raise InputError(Problem("the file holds other weights than the model", "", str(path)))
    return "weights are equal"


_WRITERS = {".pt2": _write_torch, ".onnx": _write_onnx, ".mdlus": _write_physicsnemo}


def _trace(predictor: Predictor) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    # Two samples: a size of one would be taken for a constant.
    example = (torch.zeros(2, predictor.n_pca), torch.zeros(2))
    shapes = {"pca": {0: batch}, "stage": {0: batch}}
    with torch.no_grad():
        return torch.export.export(BakedPredictor(predictor), example, dynamic_shapes=shapes)


def _compare(predictor: Predictor, predict: Callable[[Tensor, Tensor], np.ndarray]) -> str:
    """Ask the predictor and the file, at the mean scores and two standard deviations off.

    Raises
    ------
    InputError
        If they differ by more than `TOLERANCE` of the target scale.
    """
    statistics, stages = predictor.statistics, np.array([0.0, 0.37, 1.0])
    worst = 0.0
    for offset in (-2.0, 0.0, 2.0):
        scores = np.array(statistics.pca_mean) + offset * np.array(statistics.pca_scale)
        pca = torch.tensor(np.tile(scores, (len(stages), 1)), dtype=torch.float32)
        found = predict(pca, torch.tensor(stages, dtype=torch.float32))
        expected = predictor.predict(scores, stages)
        worst = max(worst, float(np.abs(found - expected).max()) / statistics.target_scale)
    if not worst <= TOLERANCE:
        raise InputError(
            f"the exported file predicts otherwise than the model, by {worst:.2g} of the target "
            f"scale ({TOLERANCE:g} is allowed): it is not kept"
        )
    return f"differs from the model by at most {worst:.2g} of the target scale"
