# From other people's files to ours: template, subjects, the check, statistics.
#
# In:  the template, the manifests and all that they name.
# Out: template/, subjects/{subject}/, check/, stats.json below results/{cohort}.


rule build_template:
    """Read the template once: its graph, its fingerprint, its shape model."""
    input:
        script=script("build_template.py"),
        library=library_of("build_template.py"),
        mesh=template_inputs,
    output:
        mesh=TEMPLATE_MESH,
        record=f"{TEMPLATE}/template.json",
        edge_index=f"{TEMPLATE}/shared_edge_index.pt",
        edge_features=f"{TEMPLATE}/shared_edge_features.pt",
        shape_model=[f"{TEMPLATE}/pca_model.json"] if HAS_SHAPE_MODEL else [],
    log:
        f"logs/{config['cohort']}/build_template.txt",
    benchmark:
        f"benchmarks/{config['cohort']}/build_template.tsv"
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        directory=subpath(output.record, parent=True),
        surface="--surface" if config["use_template_surface"] else [],
        edges=config["edges"],
    shell:
        r"""
        python {input.script:q} \
            --mesh {input.mesh[0]:q} \
            {params.surface} \
            --edges {params.edges:q} \
            --output {params.directory:q} \
            >{log:q} 2>&1
        """


# One generated rule per batch of subjects, ingest_{number}, since each declares its subjects' files.
for number, batch in enumerate(BATCHES, start=1):
    use_profile_of("ingest", f"ingest_{number}")

    rule:
        name:
            f"ingest_{number}"
        input:
            script=script("ingest_subject.py"),
            library=library_of("ingest_subject.py"),
            template=f"{TEMPLATE}/template.json",
            files=manifest_inputs(batch),
        # Parse each mesh once in the life of a cohort; what is wrong is recorded, not fatal.
        output:
            targets=[f"{RESULTS}/subjects/{stem}/targets.npy" for stem in batch],
            reference=[f"{RESULTS}/subjects/{stem}/reference.npy" for stem in batch],
            record=[f"{RESULTS}/subjects/{stem}/subject.json" for stem in batch],
        log:
            f"logs/{config['cohort']}/ingest/{number}.txt",
        benchmark:
            f"benchmarks/{config['cohort']}/ingest/{number}.tsv"
        retries: 0
        group:
            "ingest"
        conda:
            "../../envs/meshstage.yaml"
        params:
            manifests=[str(SUBJECTS[stem].manifest) for stem in batch],
            template=subpath(input.template, parent=True),
            directories=[f"{RESULTS}/subjects/{stem}" for stem in batch],
        shell:
            r"""
            python {input.script:q} \
                --manifest {params.manifests:q} \
                --template {params.template:q} \
                --output {params.directories:q} \
                --record-errors \
                >{log:q} 2>&1
            """


rule check:
    """Put every problem of every subject into one table; written whatever it says."""
    input:
        script=script("check_cohort.py"),
        library=library_of("check_cohort.py"),
        template=f"{TEMPLATE}/template.json",
        table=config["subjects"],
        subjects=subject_records(),
    output:
        json=f"{RESULTS}/check/cohort.json",
        html=report(
            f"{RESULTS}/check/cohort.html",
            caption="../report/check.rst",
            category="Data",
            labels={"what": "check of the cohort"},
        ),
    log:
        f"logs/{config['cohort']}/check.txt",
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        template=subpath(input.template, parent=True),
        subjects=subject_directories(),
        directory=subpath(output.json, parent=True),
        networks=with_option("--network", NETWORKS_AND_LOSSES),
        region=REGION,
    shell:
        r"""
        python {input.script:q} \
            --template {params.template:q} \
            {params.networks:q} \
            {params.region:q} \
            --subjects-table {input.table:q} \
            --subjects {params.subjects:q} \
            --output {params.directory:q} \
            --report-only \
            >{log:q} 2>&1
        """


rule gate:
    """Stop here if the check found an error: nothing is trained on broken meshes."""
    input:
        script=script("check_cohort.py"),
        library=library_of("check_cohort.py"),
        report=rules.check.output.json,
    output:
        passed=f"{RESULTS}/check/passed.txt",
    log:
        f"logs/{config['cohort']}/gate.txt",
    retries: 0
    localrule: True
    conda:
        "../../envs/meshstage.yaml"
    shell:
        r"""
        python {input.script:q} \
            --gate {input.report:q} \
            --output {output.passed:q} \
            >{log:q} 2>&1
        """


rule compute_stats:
    """Normalise by what training subjects alone say."""
    input:
        script=script("compute_stats.py"),
        library=library_of("compute_stats.py"),
        passed=rules.gate.output.passed,
        template=f"{TEMPLATE}/template.json",
        subjects=subject_records("train"),
    output:
        stats=f"{RESULTS}/stats.json",
    log:
        f"logs/{config['cohort']}/compute_stats.txt",
    benchmark:
        f"benchmarks/{config['cohort']}/compute_stats.tsv"
    retries: 0
    conda:
        "../../envs/meshstage.yaml"
    params:
        template=subpath(input.template, parent=True),
        train=subject_directories("train"),
    shell:
        r"""
        python {input.script:q} \
            --template {params.template:q} \
            --train {params.train:q} \
            --output {output.stats:q} \
            >{log:q} 2>&1
        """
