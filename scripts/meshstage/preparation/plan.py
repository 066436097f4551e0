"""Which subjects a preparation makes, from names and tables alone: no mesh is read.

The workflow asks for this whenever it is parsed, so that dry runs show subjects and splits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from meshstage.cohort.names import subject_stem
from meshstage.config.preparation import Preparation
from meshstage.config.subjects import SPLITS
from meshstage.errors import InputError, Problem, collecting, raise_if_any
from meshstage.meshes.formats import format_of
from meshstage.preparation.readers import READERS
from meshstage.preparation.source import PhaseMesh
from meshstage.preparation.splits import deal, parse_parts
from meshstage.preparation.stages import phase_stages, stated_number

LEAST_SUBJECTS = 3
"""Shapes of two subjects differ in one way, which is theirs alone and no mode of variation."""


@dataclass(frozen=True)
class PlannedSubject:
    """One subject.

    Parameters
    ----------
    id : str
    split : str
    reference : PhaseMesh
        The undeformed mesh.
    phases : tuple of PhaseMesh
        By stage.
    stages : tuple of float
        From 0 to 1, one per phase.
    """

    id: str
    split: str
    reference: PhaseMesh
    phases: tuple[PhaseMesh, ...]
    stages: tuple[float, ...]

    @property
    def stem(self) -> str:
        """File name of the subject."""
        return subject_stem(self.id)


@dataclass(frozen=True)
class Plan:
    """What is prepared, and how.

    Parameters
    ----------
    settings : Preparation
    subjects : tuple of PlannedSubject
        By id.
    suffix : str
        Ending of all meshes: ``.vtp``, or ``.vtu`` where a file's format can hold volumes.
    warnings : tuple of Problem
    """

    settings: Preparation
    subjects: tuple[PlannedSubject, ...]
    suffix: str
    warnings: tuple[Problem, ...]

    @property
    def template(self) -> str:
        """Name of the template."""
        return f"pca_mean{self.suffix}"

    @property
    def training(self) -> list[PlannedSubject]:
        """The subjects to train on."""
        return [subject for subject in self.subjects if subject.split == "train"]

    def input_files(self) -> list[Path]:
        """List every file that is read, once."""
        meshes = [mesh for s in self.subjects for mesh in (s.reference, *s.phases)]
        return list(dict.fromkeys(file for mesh in meshes for file in mesh.files))


def plan_cohort(settings: Preparation) -> Plan:
    """Find subjects and phases, and settle their stages, references and splits.

    Raises
    ------
    InputError
        With every problem that names and tables tell: what the reader refuses, stages that are
        unknown, outside of the cycle or twice in a subject, a subject without the reference, ids
        that differ in case only, contradicting splits, too few subjects to train on.
    """
    reader = READERS.get(settings.format)
    if reader is None:
        what = f"there is no format {settings.format!r}"
        raise InputError(Problem(what, f"write one of {', '.join(READERS)}"))
    meshes = reader.find(Path(settings.meshes), **settings.options)
    phases = _without_mere_references(meshes, settings.reference)
    stages = phase_stages(phases, settings.stage or reader.stage_unit, settings.period)
    problems: list[Problem] = []
    splits: dict[str, str] = {}
    with collecting(problems):
        splits = _splits(meshes, settings)
    of_subject: dict[str, list[PhaseMesh]] = {}
    for mesh in meshes:
        of_subject.setdefault(mesh.subject, []).append(mesh)
    series: dict[str, list[tuple[float, PhaseMesh]]] = {name: [] for name in of_subject}
    for stage, mesh in zip(stages, phases, strict=True):
        series[mesh.subject].append((stage, mesh))
    subjects = []
    for name, own in of_subject.items():
        with collecting(problems):
            in_order = sorted(series[name], key=lambda pair: pair[0])
            subjects.append(_subject(name, splits.get(name, ""), in_order, own, settings.reference))
    problems += _same_but_for_case(list(of_subject))
    if splits:
        problems += _too_few(list(splits.values()), settings)
    raise_if_any(problems)
    subjects.sort(key=lambda subject: subject.id)
    warnings = (*_missing_phases(subjects), *_other_references(subjects))
    return Plan(settings, tuple(subjects), _suffix(meshes), warnings)


def _is_reference(mesh: PhaseMesh, reference: str) -> bool:
    """Labels are compared as numbers where both are: YAML reads 00 as 0."""
    if mesh.phase == reference:
        return True
    both = mesh.phase, reference
    return all(text.isdecimal() for text in both) and int(mesh.phase) == int(reference)


def _without_mere_references(meshes: Sequence[PhaseMesh], reference: str | None) -> list[PhaseMesh]:
    """Leave out meshes called like "reference" among numbered phases: these are none of them."""
    if reference is None or all(stated_number(mesh) is None for mesh in meshes):
        return list(meshes)
    return [
        mesh
        for mesh in meshes
        if stated_number(mesh) is not None or not _is_reference(mesh, reference)
    ]


def _subject(
    name: str,
    split: str,
    own: list[tuple[float, PhaseMesh]],
    meshes: list[PhaseMesh],
    reference: str | None,
) -> PlannedSubject:
    labels = ", ".join(mesh.phase for mesh in meshes)
    at = partial(Problem, file=str(meshes[0].files[0]), subject=name)
    if not own:
        raise InputError(at("has a reference, but no phase", "give its phases"))
    for (stage, mesh), (following, other) in pairwise(own):
        if stage == following:
            what = f"the phases {mesh.phase} and {other.phase} have the same stage {stage:g}"
            raise InputError(at(what, "give each phase its own stage"))
    found = own[0][1]
    if reference is not None:
        chosen = [mesh for mesh in meshes if _is_reference(mesh, reference)]
        if not chosen:
            what = f"lacks the phase {reference}, which is to be the reference; it has {labels}"
            raise InputError(at(what, "add it, or choose another reference"))
        found = chosen[0]
    return PlannedSubject(
        name, split, found, tuple(mesh for _, mesh in own), tuple(stage for stage, _ in own)
    )


def _splits(meshes: Sequence[PhaseMesh], settings: Preparation) -> dict[str, str]:
    stated: dict[str, set[str]] = {}
    for mesh in meshes:
        stated.setdefault(mesh.subject, set()).update({mesh.split} if mesh.split else ())
    problems = []
    for name, splits in stated.items():
        if unknown := sorted(splits - set(SPLITS)):
            what = f"the split is {unknown[0]!r}, none of {', '.join(SPLITS)}"
            problems.append(Problem(what, "write one of them", settings.meshes, name))
        elif len(splits) > 1:
            what = f"is in the splits {' and '.join(sorted(splits))}"
            problems.append(Problem(what, "put all of its phases in one", settings.meshes, name))
    raise_if_any(problems)
    rest = [name for name, splits in stated.items() if not splits]
    dealt = deal(rest, parse_parts(settings.split), settings.seed) if rest else {}
    return {name: next(iter(splits), "") or dealt[name] for name, splits in stated.items()}


def _too_few(splits: list[str], settings: Preparation) -> Iterator[Problem]:
    n_train = splits.count("train")
    if n_train < LEAST_SUBJECTS:
        what = f"there are {n_train} subjects to train on (of {len(splits)}), and a shape model"
        what += f" needs at least {LEAST_SUBJECTS}"
        yield Problem(what, "add subjects, or change the split", settings.meshes)
    elif settings.modes is not None and settings.modes > n_train - 1:
        what = f"{settings.modes} modes are asked for, but {n_train} subjects to train on have "
        what += f"{n_train - 1}"
        yield Problem(what, "ask for fewer modes", settings.meshes)


def _same_but_for_case(names: list[str]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.casefold(), name)
        if other != name:
            what = f"its id differs from {other!r} by upper and lower case only (duplicates)"
            yield Problem(what, "call one otherwise", subject=name)


def _missing_phases(subjects: Sequence[PlannedSubject]) -> Iterator[Problem]:
    """Warn of phases that most subjects have and one has not."""
    counts = Counter(stage for subject in subjects for stage in subject.stages)
    usual = sorted(stage for stage, n in counts.items() if 2 * n > len(subjects))
    for subject in subjects:
        missing = [stage for stage in usual if stage not in subject.stages]
        if missing:
            shown = ", ".join(f"{stage:.4g}" for stage in missing[:5])
            more = ", ..." if len(missing) > 5 else ""
            what = f"{len(missing)} phases are missing that most subjects have: stage {shown}{more}"
            yield Problem(
                what,
                "add them, if they exist",
                str(subject.phases[0].files[0]),
                subject.id,
                severity="warning",
            )


def _other_references(subjects: Sequence[PlannedSubject]) -> Iterator[Problem]:
    """Warn of a reference that is taken at another stage than most."""

    def stage_of(subject: PlannedSubject) -> float | None:
        for mesh, stage in zip(subject.phases, subject.stages, strict=True):
            if mesh is subject.reference:
                return stage
        return None

    counts = Counter(map(stage_of, subjects))
    usual = counts.most_common(1)[0][0]
    for subject in subjects:
        stage = stage_of(subject)
        if stage != usual and stage is not None and usual is not None:
            what = f"its reference is at stage {stage:.4g}, of most subjects at {usual:.4g}"
            yield Problem(
                what,
                "add the missing phase, or choose another reference",
                str(subject.reference.files[0]),
                subject.id,
                severity="warning",
            )


def _suffix(meshes: Sequence[PhaseMesh]) -> str:
    rows = [format_of(mesh.files[0]) for mesh in meshes]
    volumes = any(row is not None and not row.surface_only for row in rows)
    return ".vtu" if volumes else ".vtp"
