"""Checkpoints: what is written, what is read, and what is refused with a sentence."""

import os
import pickle
import resource
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from meshstage.errors import InputError
from meshstage.models import checkpoint
from meshstage.models.checkpoint import load_checkpoint, load_weights, save_checkpoint
from shared_data import shared


@pytest.fixture
def payload():
    return {
        "model_state_dict": {"weight": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)},
        "pca_mean": [0.5, -1.0],
        "epoch": 7,
        "nested": {"none": None, "text": "é"},
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip_keeps_every_bit(tmp_path, payload):
    save_checkpoint(tmp_path / "a.pt", payload)
    loaded = load_checkpoint(tmp_path / "a.pt")
    assert torch.equal(loaded["model_state_dict"]["weight"], payload["model_state_dict"]["weight"])
    assert {k: v for k, v in loaded.items() if k != "model_state_dict"} == {
        k: v for k, v in payload.items() if k != "model_state_dict"
    }
    assert names(tmp_path) == ["a.pt"]


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_bare_state_dicts_and_prefixed_keys_are_read(tmp_path, prefix):
    torch.save({f"{prefix}weight": torch.ones(2)}, tmp_path / "bare.pt")
    assert list(load_checkpoint(tmp_path / "bare.pt")["model_state_dict"]) == ["weight"]


def test_checkpoint_of_another_program_is_read():
    loaded = load_checkpoint(shared("data", "interop", "mlp", "mlp_stage_model.pt"))
    assert loaded["architecture"] == "physicsnemo.models.mlp.FullyConnected"


def damage(path: Path, kind: str) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    if kind == "half":
        path.write_bytes(content[:middle])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "a flipped bit in a weight":
        at = content.index(np.arange(6.0, dtype=np.float32).tobytes()) + 5
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif kind == "text":
        path.write_text("version https://git-lfs.github.com/spec/v1\n")
    elif kind == "another zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("word/document.xml", "<w/>")
    elif kind == "no state dict":
        torch.save({"model_state_dict": {"weight": 3.0}}, path)
    elif kind == "a tensor":
        torch.save(torch.ones(3), path)
    elif kind == "missing":
        path.unlink()


@pytest.mark.parametrize(
    "kind",
    [
        "half",
        "empty",
        "a flipped bit in a weight",
        "text",
        "another zip",
        "no state dict",
        "a tensor",
        "missing",
    ],
)
def test_a_damaged_or_foreign_file_is_named_in_one_sentence(tmp_path, payload, kind):
    path = tmp_path / "a.pt"
    save_checkpoint(path, payload)
    damage(path, kind)
    with pytest.raises(InputError) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_random_damage_never_ends_in_another_error(tmp_path, payload):
    """200 files, each with one random byte changed: refused, or (in a name) read the same."""
    save_checkpoint(tmp_path / "good.pt", payload)
    content = (tmp_path / "good.pt").read_bytes()
    generator = np.random.default_rng(1)
    refused = 0
    for at in generator.integers(0, len(content), size=200):
        changed = bytes([content[at] ^ int(generator.integers(1, 256))])
        (tmp_path / "bad.pt").write_bytes(content[:at] + changed + content[at + 1 :])
        try:
            loaded = load_checkpoint(tmp_path / "bad.pt")
        except InputError:
            refused += 1
        else:
            weight = payload["model_state_dict"]["weight"]
            assert torch.equal(loaded["model_state_dict"]["weight"], weight)
    assert refused > 50  # most of the file is padding between records, which nobody reads


class Malicious:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self):
        return os.mkdir, (str(self.flag),)


def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path):
    flag = tmp_path / "it_ran"
    torch.save({"model_state_dict": {"w": torch.ones(1)}, "x": Malicious(flag)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match="refused: it holds more than tensors"):
        load_checkpoint(tmp_path / "a.pt")
    with (tmp_path / "b.pt").open("wb") as stream:
        pickle.dump(Malicious(flag), stream)
    with pytest.raises(InputError, match=r"b\.pt"):
        load_checkpoint(tmp_path / "b.pt")
    assert not flag.exists()


def test_weights_that_are_not_finite_replace_nothing(tmp_path, payload):
    save_checkpoint(tmp_path / "a.pt", payload)
    before = (tmp_path / "a.pt").read_bytes()
    payload["model_state_dict"]["weight"][1, 2] = torch.inf
    with pytest.raises(InputError, match="weights are not finite"):
        save_checkpoint(tmp_path / "a.pt", payload)
    assert (tmp_path / "a.pt").read_bytes() == before
    assert names(tmp_path) == ["a.pt"]


def test_a_writer_that_dies_half_way_leaves_the_old_file(tmp_path, payload, monkeypatch):
    save_checkpoint(tmp_path / "a.pt", payload)
    before = (tmp_path / "a.pt").read_bytes()

    def half(value, stream):
        stream.write(before[: len(before) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "a.pt", payload)
    assert (tmp_path / "a.pt").read_bytes() == before
    assert names(tmp_path) == ["a.pt"]


@pytest.fixture
def small_files():
    """Let no file of this process grow beyond 100 kB, like a disk that is full."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_full_disk_is_a_sentence_and_the_last_good_file_stays(tmp_path, payload, small_files):
    save_checkpoint(tmp_path / "a.pt", payload)
    before = (tmp_path / "a.pt").read_bytes()
    payload["model_state_dict"]["large"] = torch.ones(100_000)
    with pytest.raises(InputError, match=r"a\.pt: the checkpoint cannot be written .*free space"):
        save_checkpoint(tmp_path / "a.pt", payload)
    assert (tmp_path / "a.pt").read_bytes() == before
    assert names(tmp_path) == ["a.pt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_tmpfs_is_a_sentence_too(tmp_path, payload):
    """A real full disk, 5 MB large: the file-size limit above takes another way through C."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this container may not mount")
    try:
        payload["model_state_dict"]["large"] = torch.ones(700_000)  # 2.8 MB: fits once
        save_checkpoint(disk / "a.pt", payload)
        with pytest.raises(InputError, match="free space"):
            save_checkpoint(disk / "b.pt", payload)
        with pytest.raises(InputError, match="free space"):
            save_checkpoint(disk / "a.pt", payload)
        assert names(disk) == ["a.pt"]
        load_checkpoint(disk / "a.pt")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_other_shapes_are_refused_with_a_table(tmp_path):
    state = nn.Linear(3, 2).state_dict()
    load_weights(nn.Linear(3, 2), state, tmp_path / "a.pt")
    with pytest.raises(InputError) as caught:
        load_weights(nn.Linear(4, 2), state, tmp_path / "a.pt")
    sentence, header, row = str(caught.value).splitlines()
    assert "a.pt" in sentence and "1 place" in sentence
    assert header.split() == ["checkpoint", "this", "network"]
    assert row.split() == ["weight", "(2,", "3)", "(2,", "4)"]
    # It reaches other ranks as a pickle, with its table.
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_nothing_reads_checkpoints_with_pickle():
    """Every torch.load of the library says ``weights_only=True``."""
    library = Path(checkpoint.__file__).parent
    calls = [
        line
        for path in library.rglob("*.py")
        for line in path.read_text().splitlines()
        if "torch.load(" in line
    ]
    assert calls and all("weights_only=True" in line for line in calls), calls
