# One generated rule per run, train_{run}, and per resumed run, resume_{run}_{n}: each declares
# every file of its model, so that a dry run shows them. The same in each fold (train_{run}_folds_3)
# and in each part of the learning curve (train_{run}_subsets_5); what trains in seconds does so in
# several of them, one after the other in one process (train_gp_folds_1_to_10).
#
# In:  template, statistics, subjects; for a resumed run a checkpoint of its parent.
# Out: models/{run}/, models/{run}_{n}/ below results/{cohort}, its folds/{k} and subsets/{n}.
#
# Outputs are update(...): Snakemake deletes them neither before a run nor after a failure. The
# script goes on with a run in progress, and answers "complete" or refuses where a model stands.
# What has no epochs is fitted in a small job without a GPU: the profile's `train` is not for it.
# Inputs of a finished model are ancient() and no code is tracked: an edited manifest or a comment
# retrains nothing, and `evaluate` finds a model that is out of date by content.


for model, scopes in trainings():
    kind = "resume" if model in RESUMES else "train"
    rule_name = f"{kind}_{model}{name_of(scopes)}"
    has_epochs = ALL_RUNS[model].kind.has_epochs
    takes_gpu = has_epochs and not is_shared(model, scopes)
    if takes_gpu:
        # In a fold it has what the whole cohort's training has.
        use_profile_of("train" if scopes == [WHOLE] else f"{kind}_{model}", rule_name)

    rule:
        name:
            rule_name
        input:
            passed=for_training(model, scopes, rules.gate.output.passed),
            template=for_training(
                model,
                scopes,
                [f"{template_of(scope)}/template.json" for scope in scopes],
            ),
            stats=for_training(
                model, scopes, [f"{results_of(scope)}/stats.json" for scope in scopes]
            ),
            subjects=for_training(
                model,
                scopes,
                [
                    file
                    for scope in scopes
                    for file in records_of(scope, "train", "val")
                ],
            ),
            start=for_training(
                model,
                scopes,
                [file for scope in scopes for file in resume_source(model, scope)],
            ),
            network=for_training(model, scopes, network_file(model)),
        output:
            update([file for scope in scopes for file in model_outputs(model, scope)]),
        log:
            f"logs/{config['cohort']}/{rule_name}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/{rule_name}.tsv"
        retries: None if has_epochs else 0
        conda:
            "../../envs/meshstage.yaml"
        threads: 4 if takes_gpu else 1
        params:
            # Snakemake does not record what depends on resources: by this it sees other settings.
            settings=network_command(model),
            # One job is one training, on all the nodes and GPUs that the profile gives it; or
            # several small ones.
            command=start_training(model, scopes),
        # The log is appended to: a start that is refused must not wipe that of the one that runs.
        # `exec`, or SIGTERM would end the shell, and SLURM the job before it has saved.
        shell:
            r"""
            exec python {params.command:q} >>{log:q} 2>&1
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
