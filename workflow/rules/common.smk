# What all rules share: the checked configuration, the subjects, the runs.
#
# In:  config/config.yaml, the tables that it names, the schemas.
# Out: RESULTS, SUBJECTS, WHOLE, FOLDS, SUBSETS, RUNS, RESUMES, MODELS and a few functions.

import json
import os
import re
import sys
from pathlib import Path

# The project's folder, also with `snakemake -s ... -d elsewhere` and as a module of another
# workflow (whose own folder is `workflow.basedir` then).
HOME = Path(workflow.current_basedir.get_path_or_uri(secret_free=False)).parents[1]
sys.path.insert(0, str(HOME / "scripts"))

from meshstage.config.configuration import check_config
from meshstage.config.folds import (
    Subjects,
    fold_scopes,
    subset_scopes,
    together,
    whole_scope,
)
from meshstage.config.runs import read_runs, resumed_runs
from meshstage.config.sweeps import varied_in
from meshstage.figures.table import GROUPS
from meshstage.errors import InputError
from meshstage.launch.plan import shape_of, time_budget
from meshstage.meshes.formats import template_name
from meshstage.config.preparation import Preparation
from meshstage.config.subjects import (
    SubjectRow,
    input_files,
    read_subjects_table,
    subject_stems,
)
from meshstage.preparation.plan import plan_cohort
from meshstage.models.names import (
    checkpoint_name,
    metadata_name,
    model_file_names,
)
from meshstage.config.sources import source_files

DEMO = "results/demo/cohort"


def or_exit(read):
    """Call, or end with the sentence of what is wrong with the configuration and code 2."""
    try:
        return read()
    except InputError as error:
        for problem in error.problems:
            print(f"error: {problem.sentence()}", file=sys.stderr)
        sys.exit(2)


config = or_exit(lambda: check_config(config, "config/config.yaml or --config"))
RESULTS = f"results/{config['cohort']}"
TEMPLATE = f"{RESULTS}/template"

# Of meshes that are prepared first, the plan, and where the rule `prepare` writes their cohort.
PREPARED = f"{RESULTS}/prepared"
PLAN = None
if config["prepare"]:
    PLAN = or_exit(lambda: plan_cohort(Preparation(**config["prepare"])))
    config["template"] = f"{PREPARED}/{PLAN.template}"
    config["subjects"] = f"{PREPARED}/subjects.tsv"

TEMPLATE_MESH = f"{TEMPLATE}/{template_name(Path(config['template']), config['use_template_surface'])}"


# ---------------------------------------------------------------- subjects


def is_made(path):
    """Whether the rule `demo_cohort` or `prepare` makes a file, which need not be there yet."""
    return str(path).startswith((f"{DEMO}/", f"{PREPARED}/"))


def relative(path):
    """A path as rules name files: without `..` where it lies below this folder."""
    below = os.path.abspath(path).startswith(os.getcwd() + os.sep)
    return os.path.relpath(path) if below else str(path)


def read_subjects():
    """Rows of the table of subjects by stem, in its order; broken manifests get a stem too."""
    if PLAN:
        rows = [
            SubjectRow(Path(f"{PREPARED}/{each.stem}/manifest.json"), each.split, line)
            for line, each in enumerate(PLAN.subjects, start=2)
        ]
    else:
        rows = read_subjects_table(Path(config["subjects"]))
    stems = subject_stems(rows)
    for index, row in enumerate(rows):
        # Manifests may not be written yet; their folders are called by their ids.
        if is_made(relative(row.manifest)):
            stems[index] = row.manifest.parent.name
    return dict(zip(stems, rows, strict=True))


SUBJECTS = or_exit(read_subjects)


def subject_directories(*splits):
    """Folders of ingested subjects, of some splits or of all."""
    return [
        f"{RESULTS}/subjects/{stem}"
        for stem, row in SUBJECTS.items()
        if not splits or row.split in splits
    ]


def subject_records(*splits):
    """The files that say that subjects are ingested."""
    return [f"{directory}/subject.json" for directory in subject_directories(*splits)]


# Subjects that one job ingests, in the order of the table: starting Python for each small subject
# would take longer than reading it. Rows added at the end leave all full batches as they are.
BATCH = 10
BATCHES = [list(SUBJECTS)[i : i + BATCH] for i in range(0, len(SUBJECTS), BATCH)]


def manifest_inputs(stems):
    """Make an input function: some subjects' manifests and all files that they name and that exist."""

    def files(wildcards):
        rows = [SUBJECTS[stem] for stem in stems]
        # Files that a rule makes come and go together.
        named = [
            [row.manifest] if is_made(relative(row.manifest)) else input_files(row)
            for row in rows
        ]
        return list(dict.fromkeys(relative(path) for paths in named for path in paths))

    return files


def template_inputs(wildcards):
    """The template, and the shape model beside it if there is one."""
    mesh = Path(config["template"])
    model = mesh.with_name("pca_model.json")
    return [str(mesh), *([str(model)] if model.exists() or is_made(mesh) else [])]


HAS_SHAPE_MODEL = len(template_inputs(None)) == 2


def held_out():
    """Stems of the subjects to predict: those not trained on, or all if there are none."""
    return [stem for stem, row in SUBJECTS.items() if row.split != "train"] or list(
        SUBJECTS
    )


def predictions_of(model):
    """The animations that `predict` writes for a model, one per held-out subject."""
    return [f"{RESULTS}/predictions/{model}/{stem}/{stem}.pvd" for stem in held_out()]


# ---------------------------------------------------------------- scopes

# A scope is whom models are trained on and judged by: the whole cohort, a fold, a part for the
# learning curve. Its folder holds what results/{cohort} holds of the whole: statistics, baselines,
# models, evaluations. Template, ingested subjects and their check are shared, unless the fold has
# a shape model of its own.


def table_of_subjects():
    """Splits and groups of all subjects."""
    return Subjects(
        {stem: row.split for stem, row in SUBJECTS.items()},
        {
            stem: f"group {row.group}" if row.group else stem
            for stem, row in SUBJECTS.items()
        },
    )


WHOLE = whole_scope(table_of_subjects())
FOLDS = or_exit(
    lambda: fold_scopes(
        table_of_subjects(), config["folds"], config["refit_shape_model"]
    )
)
SUBSETS = or_exit(lambda: subset_scopes(table_of_subjects(), config["learning_curve"]))
TOGETHER = [*together(FOLDS), *together(SUBSETS)]


def name_of(scopes):
    """What the names of rules end with that serve some scopes: `_folds_3`, `_folds_1_to_10`."""
    first, last = scopes[0].name, scopes[-1].name
    return first if first == last else f"{first}_to_{last.rpartition('_')[2]}"


def results_of(scope):
    """Where the results of a scope lie."""
    return os.path.join(RESULTS, scope.folder) if scope.folder else RESULTS


def template_of(scope):
    """The folder of the template that a scope is trained on."""
    return f"{results_of(scope) if scope.refits else RESULTS}/template"


def directories_of(scope, *splits):
    """Folders of ingested subjects of some splits of a scope, with the scope's own scores."""
    home = results_of(scope) if scope.refits else RESULTS
    return [
        f"{home}/subjects/{stem}" for split in splits for stem in getattr(scope, split)
    ]


def records_of(scope, *splits):
    """The files that say that they are there; a template of their own is written after them."""
    if scope.refits:
        return [f"{template_of(scope)}/template.json"]
    return [f"{directory}/subject.json" for directory in directories_of(scope, *splits)]


# ---------------------------------------------------------------- runs


RUNS = or_exit(lambda: read_runs(Path(config["runs"])))
RESUMES = or_exit(lambda: resumed_runs(config["resume"], RUNS))
ALL_RUNS = RUNS | RESUMES
MODELS = list(ALL_RUNS)
OUT_OF_FOLD = [f"{model}.oof" for model in MODELS if FOLDS]

# What the check must demand of the template: edges, tetrahedra, or neither.
NETWORKS_AND_LOSSES = list(
    dict.fromkeys(
        name
        for run in ALL_RUNS.values()
        for name in [*([] if run.kind.file else [run.kind.name]), *run.losses]
    )
)


def model_file(model, name=checkpoint_name, scope=WHOLE):
    """A file of a model: its final checkpoint, or what another function of its tag names."""
    return f"{results_of(scope)}/models/{model}/{name(ALL_RUNS[model].tag)}"


def use_profile_of(common, name):
    """Give a generated rule what the profile sets for all of its kind; its own name wins."""
    settings = workflow.resource_settings
    own_name = workflow.modifier.modify_rulename
    name = own_name(name)  # of a module, `use rule * ... as`
    resources, threads = (
        settings._parsed_overwrite_resources,
        settings._parsed_overwrite_threads,
    )
    for kind in (common, own_name(common)):
        if kind in resources:
            own = resources.get(name, {})
            resources[name] = resources[kind].copy()
            resources[name].update(own)
        if kind in threads:
            threads.setdefault(name, threads[kind])


def for_training(model, scopes, files):
    """Take files as inputs of a training: ancient() once the model stands, which they never undo.

    Not before: Snakemake 9.27 forgets a missing output whose ancient inputs are made again in the
    same run (it masks such jobs while it looks for reasons), and would train only the next time.
    """
    stands = all(
        Path(f"{results_of(scope)}/models/{model}/complete.json").exists()
        for scope in scopes
    )
    return ancient(files) if stands else files


def model_outputs(model, scope):
    """Every file of a model."""
    run = ALL_RUNS[model]
    names = model_file_names(
        run.tag,
        run.kept_epochs,
        Path(TEMPLATE_MESH).name,
        has_edges=run.kind.needs_edges,
        has_shape_model=HAS_SHAPE_MODEL or scope.refits,
    )
    return [f"{results_of(scope)}/models/{model}/{name}" for name in names]


def figures():
    """Every figure of every run, and of all runs together."""
    return [
        f"{RESULTS}/figures/{of}{name}"
        for group in GROUPS.values()
        for of in ([f"{model}/" for model in MODELS] if group.of == "run" else [""])
        for name in group.files
        if is_drawn(group, of.rstrip("/"))
    ]


def is_drawn(group, model):
    """Whether there is something to draw: without epochs there is no curve of a training."""
    match group.only:
        case "epochs":
            return bool(ALL_RUNS[model].kept_epochs)
        case "sweep":
            return any(map(varied_in, MODELS))
        case "folds":
            return bool(FOLDS)
        case "curve":
            return bool(SUBSETS)
    return True


def network_file(model):
    """The file of a network of the user's own."""
    file = ALL_RUNS[model].kind.file
    return [relative(file)] if file else []


def resume_source(model, scope):
    """The checkpoint that a resumed run starts from; none of another run."""
    if model not in RESUMES:
        return []
    run = ALL_RUNS[model]
    epoch = None if run.start == run.parent.epochs else run.start
    name = lambda tag: checkpoint_name(tag, epoch)
    return [model_file(run.parent.name, name, scope)]


def unlisted(wildcards):
    """Tell how to list a resumed run that somebody asks for."""
    name = wildcards.model
    print(
        f"error: {name} is not listed under `resume:` in the configuration: "
        f"add `resume: {{{name}: {{epochs: ...}}}}`",
        file=sys.stderr,
    )
    sys.exit(2)


# ---------------------------------------------------------------- code


def with_option(option, values):
    """An option before its values, or nothing if there are none."""
    return [option, *values] if values else []


REGION = with_option("--region", [config["region"]] if config["region"] else [])


def script(name):
    """A script, from wherever Snakemake runs."""
    return relative(HOME / "scripts" / name)


def library_of(name, *modules):
    """The modules that a script imports, directly or not: an edit reruns what it changes."""
    return [
        relative(path) for path in source_files(HOME / "scripts" / name, *modules)[1:]
    ]
