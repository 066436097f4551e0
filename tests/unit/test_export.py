"""Exported files: alone in a fresh process they predict what the model predicts."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

from meshstage.errors import InputError
from meshstage.prediction import export
from meshstage.prediction.export import ONNX_OPSET, export_model
from meshstage.prediction.loading import load_predictor

# Inside of the training range, and far outside; one batch of three, and one of one.
PCA = np.array([[0.4, -0.7], [-1.3, 2.0], [5.0, 5.0]])
STAGE = np.array([0.0, 0.35, 0.9])

TORCH_ALONE = """
import sys, torch
pca, stage = (torch.tensor(eval(text), dtype=torch.float32) for text in sys.argv[2:4])
module = torch.export.load(sys.argv[1]).module()
targets = module(pca, stage)
one = module(pca[:1], stage[:1])
assert torch.allclose(one[0], targets[0], rtol=0, atol=1e-5), "a batch of one differs"
torch.save(targets, sys.argv[4])
print(sorted({name.split(".")[0] for name in sys.modules}))
"""
ONNX_ALONE = """
import sys, numpy, onnxruntime
pca, stage = (numpy.array(eval(text), dtype=numpy.float32) for text in sys.argv[2:4])
session = onnxruntime.InferenceSession(sys.argv[1])
[targets] = session.run(["targets"], {"pca": pca, "stage": stage})
[one] = session.run(["targets"], {"pca": pca[:1], "stage": stage[:1]})
assert numpy.allclose(one[0], targets[0], rtol=0, atol=1e-5), "a batch of one differs"
numpy.save(sys.argv[4], targets)
print(sorted({name.split(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module", params=["mgn", "mlp"])
def predictor(request, small_models):
    return load_predictor(small_models.directory(request.param))


def ask_alone(code, *arguments):
    """Run code in a fresh process that does not see this project; give the packages it loaded."""
    answer = subprocess.run(
        [sys.executable, "-I", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return set(eval(answer.stdout.splitlines()[-1]))


def expected(predictor):
    return np.concatenate([predictor.predict(p, [s]) for p, s in zip(PCA, STAGE, strict=True)])


def assert_same(found, predictor):
    # The 1e-5, of targets whose scale is some 6 mm: 14 roundings of float32.
    np.testing.assert_allclose(found, expected(predictor), rtol=0, atol=1e-5)


@pytest.mark.spawn
def test_torch_export_needs_torch_only(predictor, tmp_path):
    import torch

    path = tmp_path / "model.pt2"
    export_model(predictor, path)
    loaded = ask_alone(TORCH_ALONE, path, PCA.tolist(), STAGE.tolist(), tmp_path / "out.pt")
    assert not loaded & {"physicsnemo", "torch_geometric", "meshstage"}
    assert "torch" in loaded
    assert_same(torch.load(tmp_path / "out.pt").numpy(), predictor)


@pytest.mark.spawn
def test_onnx_needs_onnxruntime_only(predictor, tmp_path):
    import onnx

    path = tmp_path / "model.onnx"
    export_model(predictor, path)
    assert {item.domain: item.version for item in onnx.load(path).opset_import}[""] == ONNX_OPSET
    loaded = ask_alone(ONNX_ALONE, path, PCA.tolist(), STAGE.tolist(), tmp_path / "out.npy")
    assert not loaded & {"torch", "physicsnemo", "torch_geometric", "meshstage"}
    assert_same(np.load(tmp_path / "out.npy"), predictor)


def test_mdlus_is_read_by_physicsnemo_as_its_own_class(predictor, tmp_path):
    import physicsnemo

    path = tmp_path / "model.mdlus"
    export_model(predictor, path)
    network = physicsnemo.Module.from_checkpoint(str(path))
    assert type(network).__module__.startswith("physicsnemo.models.")
    with zipfile.ZipFile(path) as archive:
        stored = b"".join(archive.read(name) for name in archive.namelist())
    assert b"meshstage" not in stored, "reading it would need this package"
    weights = predictor.network.state_dict()
    assert weights.keys() == network.state_dict().keys()
    assert all(value.equal(weights[key]) for key, value in network.state_dict().items())


def test_file_that_predicts_otherwise_is_not_kept(predictor, tmp_path, monkeypatch):
    """A part in 10,000 more, as a wrong scale would give, is ten times what is allowed."""
    right = export.BakedPredictor.forward
    monkeypatch.setattr(
        export.BakedPredictor,
        "forward",
        lambda self, pca, stage: right(self, pca, stage) + 1e-4 * self.target_scale,
    )
    with pytest.raises(InputError, match="predicts otherwise"):
        export_model(predictor, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_unknown_ending_is_a_sentence(predictor, tmp_path):
    with pytest.raises(InputError, match=r"model\.h5: .*\.pt2, \.onnx, \.mdlus"):
        export_model(predictor, tmp_path / "model.h5")
