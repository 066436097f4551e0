# What people look at: figures, the page in 3-D, the table of all runs.
#
# In:  models, evaluations, predictions, baselines.
# Out: figures/ below results/{cohort}; `snakemake --report` binds them together.
#
# One generated rule per group of the table of figures (scripts/meshstage/figures/table.py).
# All are local: seconds of work are not worth a wait in a cluster's queue.

# The files that a group is drawn from, by the option of plot.py that names them or their folder.
NEEDED = {
    "model": lambda model: [model_file(model)],
    "models": lambda model: [model_file(each, metadata_name) for each in MODELS],
    "check": lambda model: [f"{RESULTS}/check/cohort.json"],
    "evaluation": lambda model: [f"{RESULTS}/evaluation/{model}.json"],
    "evaluations": lambda model: [
        f"{RESULTS}/evaluation/{each}.json" for each in [*MODELS, *OUT_OF_FOLD]
    ],
    "parts": lambda model: [
        f"{results_of(scope)}/evaluation/{each}.json"
        for scope in SUBSETS
        for each in MODELS
    ],
    "template": lambda model: [f"{TEMPLATE}/template.json"],
    "predictions": lambda model: predictions_of(model),
    "subjects": lambda model: subject_records(),
    "baselines": lambda model: [f"{RESULTS}/baselines.json"],
}
FOLDERS = {"model": 0, "models": 0, "template": 0, "predictions": 1, "subjects": 0}


def needed(kind):
    """Make an input function: all files that a group is drawn from."""
    return lambda wildcards: [
        path for need in kind.needs for path in NEEDED[need](wildcards.get("model"))
    ]


def told(kind):
    """Make a params function: the options that say where these are."""

    def options(wildcards):
        for need in kind.needs:
            yield f"--{need}"
            paths = NEEDED[need](wildcards.get("model"))
            if need in FOLDERS:
                paths = dict.fromkeys(
                    str(Path(path).parents[FOLDERS[need]]) for path in paths
                )
            yield from paths

    return lambda wildcards: list(options(wildcards))


def shown(kind, folder):
    """The files of a group, those marked that the report shows."""
    for drawing in kind.drawings:
        caption = HOME / f"workflow/report/{Path(drawing.files[0]).stem}.rst"
        yield report(
            f"{folder}/{drawing.files[0]}",
            caption=str(caption) if caption.exists() else None,
            category=kind.category,
            labels={
                "run": "{model}" if kind.of == "run" else "all",
                "figure": drawing.title,
            },
        )
        yield from (f"{folder}/{name}" for name in drawing.files[1:])


for group, kind in GROUPS.items():
    of_run = ["{model}"] if kind.of == "run" else []

    rule:
        name:
            f"plot_{group}"
        input:
            script=script("plot.py"),
            library=library_of("plot.py", *kind.modules),
            needed=needed(kind),
        output:
            list(shown(kind, os.path.join(RESULTS, "figures", *of_run))),
        log:
            os.path.join("logs", config["cohort"], f"plot_{group}", *of_run) + ".txt",
        retries: 0
        localrule: True
        conda:
            "../../envs/meshstage.yaml"
        params:
            group=group,
            told=told(kind),
            directory=lambda wildcards, output: str(Path(output[0]).parent),
        shell:
            r"""
            python {input.script:q} {params.group} {params.told:q} \
                --output {params.directory:q} \
                >{log:q} 2>&1
            """
