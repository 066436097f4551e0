# Train networks to predict how an organ's mesh moves: manifests in, trained and judged models out.
#
#   snakemake -n --profile profiles/local       what would be done
#   snakemake --profile profiles/local          do it
#
# What is trained stands in config/ (explained in config/README.md), on what machine in profiles/.


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/commands.smk"
include: "workflow/rules/demo.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/cohort.smk"
include: "workflow/rules/folds.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/judge.smk"
include: "workflow/rules/report.smk"


report: "workflow/report/workflow.rst"


rule all:
    """Every run trained, judged and shown."""
    default_target: True
    input:
        [predictions_of(model) for model in MODELS],
        figures(),
        f"{RESULTS}/check/passed.txt",
