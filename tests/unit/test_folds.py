"""Who is trained on and who is judged: dealing, the table's groups, what a fold may not see."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from meshstage.cohort.refit import fit_shape_model, scores_of
from meshstage.config.folds import Subjects, deal, fold_scopes, subset_scopes, together
from meshstage.config.subjects import read_subjects_table
from meshstage.errors import InputError
from meshstage.files import read_json
from scripts_in_process import SCRIPTS, run_script
from small_models import different_weights
from small_training import arguments

ALONE = {f"s{number:02d}": f"s{number:02d}" for number in range(23)}
# Pairs, a group of five, and subjects alone.
GROUPED = {stem: "five" if n < 5 else f"pair {n // 2}" for n, stem in enumerate(ALONE) if n < 17}
GROUPED |= {stem: stem for stem in ALONE if stem not in GROUPED}


# ---------------------------------------------------------------- dealing


@pytest.mark.parametrize("folds", [2, 5, 7])
def test_folds_differ_by_one_subject_at_most(folds):
    sizes = Counter(deal(ALONE, folds).values())
    assert set(sizes) == set(range(1, folds + 1))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@pytest.mark.parametrize("folds", [2, 5, "loo"])
@pytest.mark.parametrize("groups", [ALONE, GROUPED], ids=["alone", "grouped"])
def test_subjects_at_the_end_change_nothing_before_them(groups, folds):
    whole = deal(groups, folds)
    stems = list(groups)
    for n in range(12, len(stems)):
        first = {stem: groups[stem] for stem in stems[:n]}
        assert deal(first, folds) == {stem: whole[stem] for stem in first}


def test_groups_stay_together_and_are_dealt_by_their_size():
    dealt = deal(GROUPED, 3)
    of_group = {(GROUPED[stem], fold) for stem, fold in dealt.items()}
    assert len(of_group) == len(set(GROUPED.values()))
    # Each group went where the fewest subjects were: no fold is ahead by more than a group.
    sizes = Counter(dealt.values()).values()
    assert max(sizes) - min(sizes) <= 5


def test_leave_one_out_has_a_fold_per_group_in_the_table_s_order():
    assert list(deal(ALONE, "loo").values()) == list(range(1, 24))
    dealt = deal(GROUPED, "loo")
    assert len(set(dealt.values())) == len(set(GROUPED.values()))
    assert [dealt[stem] for stem in list(GROUPED)[:8]] == [1, 1, 1, 1, 1, 2, 3, 3]


def test_another_seed_deals_otherwise():
    assert deal(ALONE, 5, seed=0) != deal(ALONE, 5, seed=1)


@pytest.mark.parametrize(
    ("groups", "folds"), [({"a": "a", "b": "b"}, 3), ({"a": "g", "b": "g"}, "loo")]
)
def test_more_folds_than_groups_are_refused(groups, folds):
    with pytest.raises(InputError, match=f"folds is {folds}, but .*lower folds, or add"):
        deal(groups, folds)


# ---------------------------------------------------------------- scopes

SPLITS = {
    stem: "test" if n % 5 == 4 else "val" if n % 5 == 3 else "train" for n, stem in enumerate(ALONE)
}
SUBJECTS = Subjects(SPLITS, ALONE)


def test_each_subject_but_the_test_ones_is_held_out_once_and_trained_on_elsewhere():
    folds = fold_scopes(SUBJECTS, 4)
    assert [fold.folder for fold in folds] == ["folds/1", "folds/2", "folds/3", "folds/4"]
    dealt = set(SUBJECTS.of("train", "val"))
    assert Counter(stem for fold in folds for stem in fold.test) == Counter(dealt)
    for fold in folds:
        # Nobody watches: a held-out subject cannot choose an epoch.
        assert not fold.val
        assert set(fold.train) == dealt - set(fold.test)
    assert fold_scopes(SUBJECTS, None) == []


def test_parts_of_the_training_subjects_lie_within_each_other():
    five, ten = subset_scopes(SUBJECTS, [5, 10])
    assert (len(five.train), len(ten.train)) == (5, 10)
    assert set(five.train) < set(ten.train) < set(SUBJECTS.of("train"))
    assert list(five.test) == SUBJECTS.of("test") and list(five.val) == SUBJECTS.of("val")
    assert (five.folder, five.name) == ("subsets/5", "_subsets_5")


@pytest.mark.parametrize(
    ("splits", "sizes", "words"),
    [
        (SPLITS, [5, 15], "learning_curve has 15, but there are 15 training subjects"),
        (dict.fromkeys(ALONE, "train"), [5], "judges held-out subjects, and all are `train`"),
    ],
)
def test_parts_that_cannot_be_are_one_sentence(splits, sizes, words):
    with pytest.raises(InputError, match=words):
        subset_scopes(Subjects(splits, ALONE), sizes)


def test_ten_scopes_share_a_job_and_fewer_of_a_large_cohort():
    folds = fold_scopes(SUBJECTS, "loo")
    assert [len(part) for part in together(folds)] == [10, 9]
    assert [len(part) for part in together(folds[:3], most_folders=40)] == [2, 1]
    assert together([]) == []


# ---------------------------------------------------------------- the table


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "subjects.tsv"
    path.write_text("\n".join(["manifest\tsplit\tgroup", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_group_is_read_and_may_be_left_out(tmp_path):
    rows = read_subjects_table(table(tmp_path, "a.json\ttrain\tp1", "b.json\tval"))
    assert [row.group for row in rows] == ["p1", ""]


def test_a_group_in_two_splits_is_refused(tmp_path):
    path = table(tmp_path, "a.json\ttrain\tp1", "b.json\tval\tp2", "c.json\ttest\tp1")
    with pytest.raises(
        InputError, match=r"line 4: the group 'p1' is in test, but in line 2 in train"
    ):
        read_subjects_table(path)


# ---------------------------------------------------------------- a shape model of its own


def test_a_refitted_shape_model_is_the_sample_s():
    """Shapes made of two orthogonal modes with known scores: mean, variances, scores follow."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(6, 2))
    scores -= scores.mean(axis=0)
    modes, _ = np.linalg.qr(rng.normal(size=(30, 2)))
    shapes = 50 + (scores * [5, 2]) @ modes.T
    model = fit_shape_model(shapes.reshape(6, 10, 3), 9)
    # Both modes and no third; eigenvalues are those of the sample covariance.
    assert model.n_modes == 2
    covariance = np.cov((scores * [5, 2]).T)
    np.testing.assert_allclose(model.eigenvalues, np.linalg.eigvalsh(covariance)[::-1], rtol=1e-9)
    np.testing.assert_allclose(model.mean, 50, rtol=1e-12)
    for shape in shapes.reshape(6, 10, 3):
        own = scores_of(model, shape)
        np.testing.assert_allclose(model.points(own, shape), shape, rtol=1e-12)
    # Scores of those it was fitted on have deviation one, by definition.
    own = np.stack([scores_of(model, shape) for shape in shapes.reshape(6, 10, 3)])
    np.testing.assert_allclose(own.std(axis=0, ddof=1), 1, rtol=1e-9)
    assert fit_shape_model(shapes.reshape(6, 10, 3), 1).n_modes == 1


def test_shapes_that_do_not_differ_have_no_modes():
    with pytest.raises(InputError, match="2 training references have no modes of shape"):
        fit_shape_model([np.ones((10, 3))] * 2, 3)


# ---------------------------------------------------------------- what a fold may not see

SMALL = Path(__file__).resolve().parents[1] / "small_training.py"
# When and how long, which differs between two runs of the same.
TOLD = {"events.jsonl", "owner.json"}
TIMES = {"epoch_seconds", "peak_memory_mb"}


def train_fold(
    folder: Path, train: list[Path], held_out: Path, template: Path, refit: bool
) -> None:
    """Make a fold's statistics, baselines and models as the rules do."""
    if refit:
        fitted = ("--template", template, "--train", *train, "--others", held_out)
        assert run_script("refit_shape_model.py", *fitted, "--output", folder) == 0
        template = folder / "template"
        train = [folder / "subjects" / path.name for path in train]
    of = ("--template", template, "--train", *train)
    stats = folder / "stats.json"
    assert run_script("compute_stats.py", *of, "--output", stats) == 0
    fit = ("--stats", stats, "--output", folder / "baselines.json")
    assert run_script("fit_baselines.py", *of, *fit) == 0
    for name, options in (("train_gp.py", ()), (SMALL, ("--epochs=3", "--rmse-log-interval=2"))):
        output = ("--output", folder / "models" / Path(name).stem)
        assert run_script(str(name), *of, "--stats", stats, *output, *options) == 0


def without_times(path: Path) -> bytes:
    """Give a file's bytes; of metadata those of all keys but a few."""
    if not path.name.endswith("metadata.json"):
        return path.read_bytes()
    return repr({k: v for k, v in read_json(path).items() if k not in TIMES}).encode()


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): without_times(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in TOLD and "tensorboard" not in path.parts
    }


@pytest.mark.parametrize("refit", [False, True], ids=["shared shape model", "refitted"])
def test_targets_of_a_held_out_subject_change_no_byte_of_its_fold(tiny_cohort, tmp_path, refit):
    results = {}
    for name, factor in (("as it is", 1.0), ("altered", -3.0)):
        subjects = tmp_path / name / "subjects"
        for path in tiny_cohort.subject_directories["train"]:
            (subjects / path.name).mkdir(parents=True)
            for file in path.iterdir():
                (subjects / path.name / file.name).write_bytes(file.read_bytes())
        *train, held_out = sorted(subjects.iterdir())
        targets = np.load(held_out / "targets.npy")
        np.save(held_out / "targets.npy", (factor * targets).astype(np.float32))
        template = tiny_cohort.template_directory
        train_fold(tmp_path / name / "fold", train, held_out, template, refit)
        results[name] = files_of(tmp_path / name / "fold")
    before, after = results.values()
    own = f"subjects/{held_out.name}/targets.npy"
    assert (before.pop(own, b"") != after.pop(own, b"")) == refit  # its link
    assert before.keys() == after.keys()
    assert {"stats.json", "baselines.npz"} <= before.keys()
    assert "models/small_training/mlp_stage_model.pt" in before
    differ = [name for name, content in before.items() if content != after[name]]
    assert differ == []


def test_trainings_that_share_a_process_go_on_exactly_where_they_were_stopped(
    tiny_cohort, tmp_path
):
    """SIGTERM in the first of two saves it; the same command then trains both to one end."""
    options = ("--epochs=3", "--rmse-log-interval=1", "--batch-size=1", "--device=cpu")
    words = [
        word
        for name in ("a", "b")
        for word in ("--then", *arguments(tiny_cohort, tmp_path / name, *options))
    ]
    steps = tmp_path / "steps"
    command = [sys.executable, SCRIPTS / "together.py", "--load", "meshstage.training.base", "--"]
    awkward = os.environ | {"STEP_SECONDS": "0.05", "TELL_STEPS": str(steps)}
    with subprocess.Popen([*command, *words[1:]], env=awkward) as process:
        # In the second of three epochs, of 15 samples each.
        while process.poll() is None and not (
            steps.exists() and len(steps.read_text().splitlines()) > 20
        ):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 75
    assert not (tmp_path / "a/complete.json").exists() and not (tmp_path / "b").exists()
    assert subprocess.run([*command, *words[1:]], check=False).returncode == 0
    a, b = (tmp_path / name / "mlp_stage_model.pt" for name in "ab")
    assert different_weights(a, b) == []
