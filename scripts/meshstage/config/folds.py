"""Who is trained on and who is judged: the whole cohort, its folds, and growing parts of it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshstage.errors import InputError, Problem

Folds = int | str
"""Number of folds, or ``loo``: leave one group out."""


@dataclass(frozen=True)
class Subjects:
    """What the table says of each subject, in its order.

    Parameters
    ----------
    splits : mapping
        Stem to ``train``, ``val`` or ``test``.
    groups : mapping
        Stem to what keeps subjects together; a subject that is in no group is one of its own.
    """

    splits: Mapping[str, str]
    groups: Mapping[str, str]

    def of(self, *splits: str) -> list[str]:
        """Stems of some splits."""
        return [stem for stem, split in self.splits.items() if split in splits]


@dataclass(frozen=True)
class Scope:
    """Whom models are trained on and judged by, and where this goes.

    Parameters
    ----------
    folder : str
        Below ``results/{cohort}``; empty for the whole cohort.
    train, val, test : tuple of str
        Stems.
    refits : bool
        Whether it has a shape model, and scores of all subjects, of its own.
    """

    folder: str
    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    refits: bool = False

    @property
    def name(self) -> str:
        """Ending of the names of its rules, ``_folds_3``; empty for the whole cohort."""
        return "".join(f"_{part}" for part in self.folder.split("/") if part)


def deal(groups: Mapping[str, str], folds: Folds, seed: int = 0) -> dict[str, int]:
    """Deal subjects to folds, groups as a whole; subjects that follow change nothing before them.

    Each new group goes to a fold that has the fewest subjects so far, drawn by the seed among
    equals. With ``loo`` each is a fold of its own.

    Parameters
    ----------
    groups : mapping
        Stem to group, in the order of the table.
    folds : int or "loo"
    seed : int

    Returns
    -------
    dict of str to int
        Stem to fold, from 1.

    Raises
    ------
    InputError
        If there are fewer groups than folds, or only one group.
    """
    n_groups = len(set(groups.values()))
    n_folds = n_groups if folds == "loo" else int(folds)
    if n_groups < max(n_folds, 2):
        what = f"folds is {folds}, but the rows of train and val are {n_groups} to be dealt"
        raise InputError(
            Problem(f"{what}, subjects of a group counted as one", "lower folds, or add subjects")
        )
    sizes = np.zeros(n_folds, int)
    fold_of: dict[str, int] = {}
    for dealt, group in enumerate(groups.values()):
        if group not in fold_of:
            smallest = np.flatnonzero(sizes == sizes.min())
            drawn = np.random.default_rng([seed, dealt]).choice(smallest)
            fold_of[group] = len(fold_of) if folds == "loo" else int(drawn)
        sizes[fold_of[group]] += 1
    return {stem: fold_of[group] + 1 for stem, group in groups.items()}


def whole_scope(subjects: Subjects) -> Scope:
    """Give the whole cohort, split as the table says."""
    train, val, test = (tuple(subjects.of(split)) for split in ("train", "val", "test"))
    return Scope("", train, val, test)


def fold_scopes(subjects: Subjects, folds: Folds | None, refit: bool = False) -> list[Scope]:
    """Give the folds: each is tested by its own subjects and trained on all others'.

    Nobody watches a training in a fold: the held-out subjects steer nothing, and the last weights
    are the model. Subjects of ``test`` are in no fold.
    """
    if folds is None:
        return []
    stems = subjects.of("train", "val")
    fold_of = deal({stem: subjects.groups[stem] for stem in stems}, folds)
    return [
        Scope(
            f"folds/{number}",
            tuple(stem for stem in stems if fold_of[stem] != number),
            (),
            tuple(stem for stem in stems if fold_of[stem] == number),
            refit,
        )
        for number in range(1, max(fold_of.values()) + 1)
    ]


def subset_scopes(subjects: Subjects, sizes: Sequence[int]) -> list[Scope]:
    """Give parts of the training subjects, each within the next, judged by all held-out ones.

    Subjects are taken in the order of a hash of their group, so that a part is like a drawn one
    and a table that grows leaves it nearly as it is.

    Raises
    ------
    InputError
        If a size is no smaller than the number of training subjects, or nobody is held out.
    """
    train = subjects.of("train")
    if sizes and max(sizes) >= len(train):
        what = f"learning_curve has {max(sizes)}, but there are {len(train)} training subjects"
        raise InputError(Problem(what, "list numbers below: the whole is always the last point"))
    if sizes and not subjects.of("val", "test"):
        raise InputError(
            Problem("learning_curve judges held-out subjects, and all are `train`",
                    "give some rows the split val or test")
        )  # fmt: skip
    drawn = sorted(train, key=lambda stem: (_drawn(subjects.groups[stem]), _drawn(stem)))
    return [
        Scope(
            f"subsets/{size}",
            tuple(stem for stem in train if stem in drawn[:size]),
            tuple(subjects.of("val")),
            tuple(subjects.of("test")),
        )
        for size in sizes
    ]


def together(scopes: Sequence[Scope], most_folders: int = 600) -> list[list[Scope]]:
    """Put up to ten scopes together, whose small jobs then share a process and its imports.

    Fewer for large cohorts: a command names each subject's folder, and may hold some 100 kB.
    """
    most = max(1, min(10, most_folders // max((len(s.train) for s in scopes), default=1)))
    return [list(scopes[i : i + most]) for i in range(0, len(scopes), most)]


def _drawn(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
