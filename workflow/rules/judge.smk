# What a model is worth: predictions, errors, and the errors of simple rules beside them.
#
# In:  models, subjects, statistics.
# Out: predictions/{run}/, baselines.json, evaluation/{run}.csv and .json below results/{cohort}.


wildcard_constraints:
    model="|".join(map(re.escape, MODELS)),


rule fit_baselines:
    """Fit what a network has to beat: no motion, the mean motion, rules learned without a network."""
    input:
        script=script("fit_baselines.py"),
        library=library_of("fit_baselines.py"),
        stats=rules.compute_stats.output.stats,
        template=f"{TEMPLATE}/template.json",
        subjects=subject_records("train", "val"),
    output:
        baselines=f"{RESULTS}/baselines.json",
        arrays=f"{RESULTS}/baselines.npz",
    log:
        f"logs/{config['cohort']}/fit_baselines.txt",
    benchmark:
        f"benchmarks/{config['cohort']}/fit_baselines.tsv"
    priority: 1  # before the trainings, whose skill so far is told by it
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        template=subpath(input.template, parent=True),
        train=subject_directories("train"),
        val=with_option("--val", subject_directories("val")),
        cycle=config["cycle"],
    shell:
        r"""
        python {input.script:q} \
            --template {params.template:q} \
            --stats {input.stats:q} \
            --train {params.train:q} \
            {params.val:q} \
            --cycle {params.cycle:q} \
            --output {output.baselines:q} \
            >{log:q} 2>&1
        """


rule evaluate:
    """Judge a model on every subject, beside the baselines; one job per model."""
    input:
        script=script("evaluate.py"),
        library=library_of("evaluate.py"),
        model=lambda wildcards: model_file(wildcards.model),
        stats=rules.compute_stats.output.stats,
        baselines=rules.fit_baselines.output.baselines,
        template=f"{TEMPLATE}/template.json",
        subjects=subject_records(),
    output:
        csv=f"{RESULTS}/evaluation/{{model}}.csv",
        json=f"{RESULTS}/evaluation/{{model}}.json",
    log:
        f"logs/{config['cohort']}/evaluate/{{model}}.txt",
    benchmark:
        f"benchmarks/{config['cohort']}/evaluate/{{model}}.tsv"
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        model=subpath(input.model, parent=True),
        subjects=subject_directories(),
        region=REGION,
        template=subpath(input.template, parent=True),
    shell:
        r"""
        python {input.script:q} \
            --model {params.model:q} \
            --subjects {params.subjects:q} \
            --stats {input.stats:q} \
            --baselines {input.baselines:q} \
            --template {params.template:q} \
            {params.region:q} \
            --output {output.csv:q} \
            >{log:q} 2>&1
        """


rule predict:
    """Write the predicted meshes of all held-out subjects; one job per model."""
    input:
        script=script("predict.py"),
        library=library_of("predict.py"),
        model=lambda wildcards: model_file(wildcards.model),
        subjects=subject_records(),
    output:
        pvd=[
            f"{RESULTS}/predictions/{{model}}/{stem}/{stem}.pvd" for stem in held_out()
        ],
    log:
        f"logs/{config['cohort']}/predict/{{model}}.txt",
    benchmark:
        f"benchmarks/{config['cohort']}/predict/{{model}}.tsv"
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        model=subpath(input.model, parent=True),
        manifests=[str(SUBJECTS[stem].manifest) for stem in held_out()],
        directory=lambda wildcards, output: str(Path(output.pvd[0]).parents[1]),
    shell:
        r"""
        python {input.script:q} \
            --model {params.model:q} \
            --manifest {params.manifests:q} \
            --output {params.directory:q} \
            >{log:q} 2>&1
        """
