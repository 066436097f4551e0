# From meshes in correspondence to a cohort, if the configuration has a section `prepare`.
#
# In:  the meshes that its source names; they are found whenever this is parsed.
# Out: prepared/ below results/{cohort}, laid out as a user's own cohort is.

if PLAN:

    rule prepare:
        """Bring the subjects together, find the modes of their shapes, write manifests."""
        input:
            script=script("prepare_cohort.py"),
            library=library_of("prepare_cohort.py"),
            meshes=[relative(path) for path in PLAN.input_files()],
        output:
            template=config["template"],
            shape_model=f"{PREPARED}/pca_model.json",
            alignment=f"{PREPARED}/alignment.json",
            table=config["subjects"],
            manifests=[str(row.manifest) for row in SUBJECTS.values()],
            modes=report(
                f"{PREPARED}/modes.png",
                category="Data",
                labels={"what": "modes of shape"},
            ),
        log:
            f"logs/{config['cohort']}/prepare.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/prepare.tsv"
        retries: 0
        conda:
            "../../envs/meshstage.yaml"
        params:
            options=[
                f"--{name.replace('_', '-')}={value}"
                for name, value in config["prepare"].items()
                if value is not None
            ],
            directory=subpath(output.table, parent=True),
        shell:
            r"""
            python {input.script:q} {params.options:q} \
                --output {params.directory:q} \
                >{log:q} 2>&1
            """
