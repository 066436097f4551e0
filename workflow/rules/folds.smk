# Folds, and parts of the training subjects for the learning curve: what a training needs of each,
# and what all folds together say of a run.
#
# In:  subjects, template, the passed check; of each fold the models that train.smk makes.
# Out: stats.json, baselines.json, evaluation/ below results/{cohort}/folds/{k} and subsets/{n},
#      with `refit_shape_model` also template/ and subjects/; evaluation/{run}.oof.csv and .json.
#
# Small steps of up to ten scopes are one job, whose imports then count once.


for scopes in together([scope for scope in FOLDS if scope.refits]):

    rule:
        name:
            f"refit{name_of(scopes)}"
        input:
            script=script("together.py"),
            library=[
                *library_of("together.py"),
                *library_of("refit_shape_model.py"),
            ],
            passed=rules.gate.output.passed,
            template=f"{TEMPLATE}/template.json",
            subjects=subject_records(),
        output:
            mesh=[
                f"{template_of(scope)}/{Path(TEMPLATE_MESH).name}" for scope in scopes
            ],
            shape_model=[f"{template_of(scope)}/pca_model.json" for scope in scopes],
            edge_index=[
                f"{template_of(scope)}/shared_edge_index.pt" for scope in scopes
            ],
            edge_features=[
                f"{template_of(scope)}/shared_edge_features.pt" for scope in scopes
            ],
            record=[f"{template_of(scope)}/template.json" for scope in scopes],
        log:
            f"logs/{config['cohort']}/refit{name_of(scopes)}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/refit{name_of(scopes)}.tsv"
        priority: 1
        retries: 0
        conda:
            "../../envs/meshstage.yaml"
        params:
            command=together_command(
                [refit_command(scope) for scope in scopes],
                "meshstage.cohort.refit",
                "torch",
            ),
        shell:
            r"""
            python {params.command:q} >{log:q} 2>&1
            """


for scopes in TOGETHER:

    rule:
        name:
            f"fit{name_of(scopes)}"
        input:
            script=script("together.py"),
            library=[
                file
                for name in ("together.py", "compute_stats.py", "fit_baselines.py")
                for file in library_of(name)
            ],
            passed=rules.gate.output.passed,
            template=[f"{template_of(scope)}/template.json" for scope in scopes],
            subjects=[
                file for scope in scopes for file in records_of(scope, "train", "val")
            ],
        output:
            stats=[f"{results_of(scope)}/stats.json" for scope in scopes],
            baselines=[f"{results_of(scope)}/baselines.json" for scope in scopes],
            arrays=[f"{results_of(scope)}/baselines.npz" for scope in scopes],
        log:
            f"logs/{config['cohort']}/fit{name_of(scopes)}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/fit{name_of(scopes)}.tsv"
        priority: 1  # before the trainings, which wait for them
        retries: 0
        conda:
            "../../envs/meshstage.yaml"
        params:
            command=together_command(
                [
                    command
                    for scope in scopes
                    for command in (stats_command(scope), baselines_command(scope))
                ],
                "meshstage.motion.baselines",
                "meshstage.cohort.template",
            ),
        shell:
            r"""
            python {params.command:q} >{log:q} 2>&1
            """


if SUBSETS:
    use_profile_of("evaluate", "evaluate_subsets")

    rule evaluate_subsets:
        """Judge a run that was trained on parts of the subjects; one job per run."""
        input:
            script=script("together.py"),
            library=[*library_of("together.py"), *library_of("evaluate.py")],
            models=lambda wildcards: [
                model_file(wildcards.model, scope=scope) for scope in SUBSETS
            ],
            stats=[f"{results_of(scope)}/stats.json" for scope in SUBSETS],
            baselines=[f"{results_of(scope)}/baselines.json" for scope in SUBSETS],
            template=f"{TEMPLATE}/template.json",
            subjects=subject_records(),
        output:
            [
                f"{results_of(scope)}/evaluation/{{model}}.{ending}"
                for scope in SUBSETS
                for ending in ("csv", "json")
            ],
        log:
            f"logs/{config['cohort']}/evaluate_subsets/{{model}}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/evaluate_subsets/{{model}}.tsv"
        retries: 0
        conda:
            "../../envs/meshstage.yaml"
        params:
            command=lambda wildcards: together_command(
                [evaluate_command(scope, wildcards.model) for scope in SUBSETS],
                "meshstage.prediction.loading",
                "meshstage.judging.evaluation",
                *module_of(wildcards.model),
            ),
        shell:
            r"""
            python {params.command:q} >{log:q} 2>&1
            """


if FOLDS:
    use_profile_of("evaluate", "evaluate_folds")

    rule evaluate_folds:
        """Judge each subject by the model of the fold that has not seen it; one job per run."""
        input:
            script=script("evaluate_folds.py"),
            library=library_of("evaluate_folds.py"),
            models=lambda wildcards: [
                model_file(wildcards.model, scope=scope) for scope in FOLDS
            ],
            stats=[f"{results_of(scope)}/stats.json" for scope in FOLDS],
            baselines=[f"{results_of(scope)}/baselines.json" for scope in FOLDS],
            template=f"{TEMPLATE}/template.json",
            subjects=subject_records("train", "val"),
        output:
            csv=f"{RESULTS}/evaluation/{{model}}.oof.csv",
            json=f"{RESULTS}/evaluation/{{model}}.oof.json",
            folds=[
                f"{results_of(scope)}/evaluation/{{model}}.{ending}"
                for scope in FOLDS
                for ending in ("csv", "json")
            ],
        log:
            f"logs/{config['cohort']}/evaluate_folds/{{model}}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/evaluate_folds/{{model}}.tsv"
        retries: 0
        conda:
            "../../envs/meshstage.yaml"
        params:
            folds=[results_of(scope) for scope in FOLDS],
            subjects=subject_directories("train", "val"),
            region=REGION,
            template=subpath(input.template, parent=True),
        shell:
            r"""
            python {input.script:q} \
                --run {wildcards.model:q} \
                --folds {params.folds:q} \
                --subjects {params.subjects:q} \
                --template {params.template:q} \
                {params.region:q} \
                --output {output.csv:q} \
                >{log:q} 2>&1
            """
