# What people look at: figures, the page in 3-D, the table of all runs.
#
# In:  models, evaluations, predictions, baselines.
# Out: figures/ below results/{cohort}; `snakemake --report` binds them together.
#
# All are local: seconds of work are not worth a wait in a cluster's queue.


rule plot_training:
    """Show whether a training has come to its end, and how far it got beside the baselines."""
    input:
        script=script("plot_training.py"),
        library=library_of("plot_training.py"),
        model=lambda wildcards: model_file(wildcards.model),
        evaluation=f"{RESULTS}/evaluation/{{model}}.json",
    output:
        png=report(
            f"{RESULTS}/figures/{{model}}/training.png",
            caption="../report/training.rst",
            category="Training",
            labels={"run": "{model}", "figure": "loss and RMSE"},
        ),
    log:
        f"logs/{config['cohort']}/plot_training/{{model}}.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    params:
        model=subpath(input.model, parent=True),
    shell:
        r"""
        python {input.script:q} \
            --model {params.model:q} \
            --evaluation {input.evaluation:q} \
            --output {output.png:q} \
            >{log:q} 2>&1
        """


rule plot_evaluation:
    """Put all runs beside each other: by stage, by subject, in one table."""
    input:
        script=script("plot_evaluation.py"),
        library=library_of("plot_evaluation.py"),
        evaluations=expand(f"{RESULTS}/evaluation/{{model}}.json", model=MODELS),
    output:
        by_stage=report(
            f"{RESULTS}/figures/error_by_stage.png",
            caption="../report/error_by_stage.rst",
            category="Judgement",
            labels={"run": "all", "figure": "error by stage"},
        ),
        by_subject=report(
            f"{RESULTS}/figures/error_by_subject.png",
            caption="../report/error_by_subject.rst",
            category="Judgement",
            labels={"run": "all", "figure": "error by subject"},
        ),
        sweeps=(
            report(
                f"{RESULTS}/figures/sweeps.png",
                caption="../report/sweeps.rst",
                category="Judgement",
                labels={"run": "all", "figure": "error by what a sweep varies"},
            )
            if any(map(varied_in, MODELS))
            else []
        ),
        table=report(
            f"{RESULTS}/figures/runs.html",
            caption="../report/runs.rst",
            category="Judgement",
            labels={"run": "all", "figure": "table of all runs"},
        ),
        tsv=f"{RESULTS}/figures/runs.tsv",
    log:
        f"logs/{config['cohort']}/plot_evaluation.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    params:
        directory=subpath(output.table, parent=True),
    shell:
        r"""
        python {input.script:q} \
            --evaluations {input.evaluations:q} \
            --output {params.directory:q} \
            >{log:q} 2>&1
        """


rule describe_runs:
    """Say what all runs were made of: settings, data, versions."""
    input:
        script=script("describe_runs.py"),
        library=library_of("describe_runs.py"),
        models=[model_file(model, metadata_name) for model in MODELS],
        check=rules.check.output.json,
    output:
        html=report(
            f"{RESULTS}/figures/parameters.html",
            caption="../report/parameters.rst",
            category="Data",
            labels={"what": "settings, data, versions"},
        ),
    log:
        f"logs/{config['cohort']}/describe_runs.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    params:
        models=lambda wildcards, input: [str(Path(m).parent) for m in input.models],
    shell:
        r"""
        python {input.script:q} \
            --models {params.models:q} \
            --check {input.check:q} \
            --output {output.html:q} \
            >{log:q} 2>&1
        """


rule plot_meshes:
    """Show truth beside prediction beside error on the mesh, and one cycle as an animation."""
    input:
        script=script("plot_meshes.py"),
        library=library_of("plot_meshes.py"),
        template=f"{TEMPLATE}/template.json",
        evaluation=f"{RESULTS}/evaluation/{{model}}.json",
        predictions=predictions_of("{model}"),
        subjects=subject_records(),
    output:
        png=report(
            f"{RESULTS}/figures/{{model}}/meshes.png",
            caption="../report/meshes.rst",
            category="Meshes",
            labels={"run": "{model}", "figure": "best, median and worst"},
        ),
        gif=f"{RESULTS}/figures/{{model}}/cycle.gif",
        cycle=report(
            f"{RESULTS}/figures/{{model}}/cycle.html",
            caption="../report/cycle.rst",
            category="Meshes",
            labels={"run": "{model}", "figure": "one cycle"},
        ),
    log:
        f"logs/{config['cohort']}/plot_meshes/{{model}}.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    params:
        template=subpath(input.template, parent=True),
        predictions=lambda wildcards, input: str(Path(input.predictions[0]).parents[1]),
        subjects=subject_directories(),
        directory=subpath(output.png, parent=True),
    shell:
        r"""
        python {input.script:q} \
            --template {params.template:q} \
            --evaluation {input.evaluation:q} \
            --predictions {params.predictions:q} \
            --subjects {params.subjects:q} \
            --output {params.directory:q} \
            >{log:q} 2>&1
        """


rule make_viewer:
    """Make a page in 3-D that a person can turn by hand, without a network."""
    input:
        script=script("make_viewer.py"),
        library=library_of("make_viewer.py"),
        page=script("meshstage/figures/viewer.html"),
        template=f"{TEMPLATE}/template.json",
        evaluation=f"{RESULTS}/evaluation/{{model}}.json",
        predictions=predictions_of("{model}"),
        baselines=f"{RESULTS}/baselines.json",
        subjects=subject_records(),
    output:
        html=report(
            f"{RESULTS}/figures/{{model}}/viewer.html",
            caption="../report/viewer.rst",
            category="Meshes",
            labels={"run": "{model}", "figure": "3-D, to be turned by hand"},
        ),
    log:
        f"logs/{config['cohort']}/make_viewer/{{model}}.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    params:
        template=subpath(input.template, parent=True),
        predictions=lambda wildcards, input: str(Path(input.predictions[0]).parents[1]),
        subjects=subject_directories(),
    shell:
        r"""
        python {input.script:q} \
            --template {params.template:q} \
            --evaluation {input.evaluation:q} \
            --predictions {params.predictions:q} \
            --baselines {input.baselines:q} \
            --subjects {params.subjects:q} \
            --output {output.html:q} \
            >{log:q} 2>&1
        """
