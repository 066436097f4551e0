# The commands of jobs that serve one scope or several, as lists of words.
#
# In:  what common.smk defines.
# Out: functions; no rule.


def stats_command(scope):
    """The command that computes the statistics of a scope."""
    return [
        script("compute_stats.py"),
        *("--template", template_of(scope)),
        *("--train", *directories_of(scope, "train")),
        *("--output", f"{results_of(scope)}/stats.json"),
    ]


def baselines_command(scope):
    """The command that fits the baselines of a scope."""
    return [
        script("fit_baselines.py"),
        *("--template", template_of(scope)),
        *("--stats", f"{results_of(scope)}/stats.json"),
        *("--train", *directories_of(scope, "train")),
        *with_option("--val", directories_of(scope, "val")),
        *("--cycle", config["cycle"]),
        *("--output", f"{results_of(scope)}/baselines.json"),
    ]


def refit_command(scope):
    """The command that fits the shape model of a scope."""
    others = [stem for stem in SUBJECTS if stem not in scope.train]
    return [
        script("refit_shape_model.py"),
        *("--template", TEMPLATE),
        *("--train", *(f"{RESULTS}/subjects/{stem}" for stem in scope.train)),
        *("--others", *(f"{RESULTS}/subjects/{stem}" for stem in others)),
        *("--output", results_of(scope)),
    ]


def evaluate_command(scope, model):
    """The command that judges a run of a scope."""
    return [
        script("evaluate.py"),
        *("--model", f"{results_of(scope)}/models/{model}"),
        *("--subjects", *directories_of(scope, "train", "val", "test")),
        *("--stats", f"{results_of(scope)}/stats.json"),
        *("--baselines", f"{results_of(scope)}/baselines.json"),
        *("--template", TEMPLATE),
        *REGION,
        *("--output", f"{results_of(scope)}/evaluation/{model}.csv"),
    ]


def network_command(model):
    """The script of a run's network, and the run's settings as its options."""
    run = ALL_RUNS[model]
    settings = run.settings | {"cycle": config["cycle"]}
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in settings.items()
    ]
    own = script(f"train_{run.kind.name}.py")
    if Path(own).exists():
        return [own, *options]
    if run.kind.file:
        options.append(f"--options={json.dumps(run.options)}")
    return [
        script("train.py"),
        f"--network={run.kind.method if run.kind.file else run.kind.name}",
        *options,
    ]


def train_command(model, scope, minutes):
    """The command that trains a run in a scope, within some minutes."""
    resumed = model in RESUMES
    number = str(RESUMES[model].number) if resumed else ""
    directory = f"{results_of(scope)}/models/{model}"
    return [
        *network_command(model),
        *("--template", template_of(scope)),
        *("--stats", f"{results_of(scope)}/stats.json"),
        *("--train", *directories_of(scope, "train")),
        *with_option("--val", directories_of(scope, "val")),
        *("--output", directory.removesuffix(f"_{number}") if resumed else directory),
        *with_option("--resume-from", resume_source(model, scope)),
        *with_option("--sibling", [number] if resumed else []),
        *("--time-budget", str(minutes)),
    ]


def start_training(model, scopes):
    """Make a params function: one training on all that the profile gives it, or several."""

    def command(wildcards, resources):
        minutes = time_budget(resources)
        commands = [train_command(model, scope, minutes) for scope in scopes]
        if is_shared(model, scopes):
            commands = [[*each, "--device", "cpu"] for each in commands]
            return together_command(
                commands, "meshstage.training.base", *module_of(model)
            )
        shape = shape_of(resources)
        nodes = ["--nodes", str(shape.nodes), "--gpus-per-node", str(shape.gpus)]
        return [script("launch.py"), *nodes, "--", *commands[0]]

    return command


def module_of(model):
    """The module that trains a network of ours."""
    kind = ALL_RUNS[model].kind
    return [] if kind.file else [kind.method.partition(":")[0]]


def is_shared(model, scopes):
    """Whether a job trains a small network in several scopes, on a CPU."""
    return ALL_RUNS[model].kind.is_small and scopes != [WHOLE]


def together_command(commands, *modules):
    """The command that runs several in one process, which has imported some modules."""
    following = [word for each in commands for word in ("--then", *each)]
    return [
        script("together.py"),
        *with_option("--load", modules),
        "--",
        *following[1:],
    ]


def trainings():
    """What each job trains: a run in one scope, or a small one in several, one after the other."""
    for model in MODELS:
        yield model, [WHOLE]
        for scopes in TOGETHER:
            if is_shared(model, scopes):
                yield model, scopes
            else:
                yield from ((model, [scope]) for scope in scopes)
