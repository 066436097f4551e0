# The embedded demo cohort: idealised left ventricles that beat by a closed formula.
#
# In:  nothing.
# Out: results/demo/cohort, laid out as a user's own cohort is.


rule demo_cohort:
    """Write the cohort that config/subjects.tsv names as it comes."""
    input:
        script=script("make_demo_cohort.py"),
        library=library_of("make_demo_cohort.py"),
    output:
        template=f"{DEMO}/pca_mean.vtu",
        shape_model=f"{DEMO}/pca_model.json",
        table=f"{DEMO}/subjects.tsv",
        manifests=[f"{DEMO}/demo-{number:03d}/manifest.json" for number in range(1, 31)],
    log:
        "logs/demo/demo_cohort.txt",
    conda:
        "../../envs/meshstage.yaml"
    params:
        directory=subpath(output.table, parent=True),
    shell:
        r"""
        python {input.script:q} --output {params.directory:q} >{log:q} 2>&1
        """
