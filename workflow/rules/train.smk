# One generated rule per run, train_{run}, and per resumed run, resume_{run}_{n}: each declares
# every file of its model, so that a dry run shows them.
#
# In:  template, statistics, subjects; for a resumed run a checkpoint of its parent.
# Out: models/{run}/, models/{run}_{n}/ below results/{cohort}.
#
# Outputs are update(...): Snakemake deletes them neither before a run nor after a failure. The
# script goes on with a run in progress, and answers "complete" or refuses where a model stands.
# What has no epochs is fitted in a small job without a GPU: the profile's `train` is not for it.
# Inputs of a finished model are ancient() and no code is tracked: an edited manifest or a comment
# retrains nothing, and `evaluate` finds a model that is out of date by content.


for model in MODELS:
    resumed = model in RESUMES
    rule_name = f"resume_{model}" if resumed else f"train_{model}"
    has_epochs = ALL_RUNS[model].kind.has_epochs
    if has_epochs:
        use_profile_of("train", rule_name)

    rule:
        name:
            rule_name
        input:
            passed=for_training(model, rules.gate.output.passed),
            template=for_training(model, f"{TEMPLATE}/template.json"),
            stats=for_training(model, f"{RESULTS}/stats.json"),
            subjects=for_training(model, subject_records("train", "val")),
            start=for_training(model, resume_source(model)) if resumed else [],
            network=for_training(model, network_file(model)),
        output:
            update(model_outputs(model)),
        log:
            f"logs/{config['cohort']}/{rule_name}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/{rule_name}.tsv"
        retries: None if has_epochs else 0
        conda:
            "../../envs/meshstage.yaml"
        threads: 4 if has_epochs else 1
        params:
            launch=script("launch.py"),
            command=train_command(model),
            directory=directory_of_run(model),
            template=subpath(input.template, parent=True),
            train=subject_directories("train"),
            val=with_option("--val", subject_directories("val")),
            resume=(
                [
                    "--resume-from",
                    resume_source(model),
                    "--sibling",
                    RESUMES[model].number,
                ]
                if resumed
                else []
            ),
            # One job is one training, on all the nodes and GPUs that the profile gives it.
            nodes=lambda wildcards, resources: shape_of(resources).nodes,
            gpus=lambda wildcards, resources: shape_of(resources).gpus,
            minutes=lambda wildcards, resources: time_budget(resources),
        # The log is appended to: a start that is refused must not wipe that of the one that runs.
        # `exec`, or SIGTERM would end the shell, and SLURM the job before it has saved.
        shell:
            r"""
            exec python {params.launch:q} --nodes {params.nodes} --gpus-per-node {params.gpus} -- \
                {params.command:q} \
                --template {params.template:q} \
                --stats {input.stats:q} \
                --train {params.train:q} \
                {params.val:q} \
                --output {params.directory:q} \
                {params.resume:q} \
                --time-budget {params.minutes} \
                >>{log:q} 2>&1
            """


rule resume_unlisted:
    """Answer a resumed run that the configuration does not know with a sentence."""
    input:
        unlisted,
    output:
        f"{RESULTS}/models/{{model}}/{{file}}",
    wildcard_constraints:
        model=rf"(?!(?:{'|'.join(map(re.escape, MODELS))})/)[^/]+_[0-9]+",
        file="[^/]+",
