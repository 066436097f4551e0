"""Ids, folders and a missing validation split, through the whole workflow."""

import json
import shutil
import subprocess
import sys

from workflow.project import ROOT, Project

IDS = {"demo-001": "x;touch pwned", "demo-002": "$(id)", "demo-003": "a 'b' \"c\" & d"}
RUNS = "run\tnetwork\tepochs\trmse_log_interval\tlayer_size\tnum_layers\nsmall\tmlp\t2\t2\t8\t2\n"


def test_names_never_reach_a_shell_and_no_validation_subject_is_legal(tmp_path):
    project = Project.copy(tmp_path / "project")
    data = project.folder / "my data; $(touch pwned)"
    make = [sys.executable, ROOT / "scripts/make_demo_cohort.py", "--output", data]
    subprocess.run([*make, "--subjects", "3", "--phases", "2", "--resolution", "3"], check=True)
    rows = ["manifest\tsplit"]
    for folder, name in IDS.items():
        manifest = json.loads((data / folder / "manifest.json").read_text(encoding="utf-8"))
        shutil.move(data / folder, data / f"{folder} `touch pwned`")
        path = data / f"{folder} `touch pwned`" / "manifest.json"
        path.write_text(json.dumps({**manifest, "subject_id": name}), encoding="utf-8")
        split = "test" if folder == "demo-003" else "train"
        rows.append(f"{path.parent.name}/manifest.json\t{split}")
    (data / "subjects.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    project.write("config/runs.tsv", RUNS)
    project.write(
        "config/config.yaml",
        json.dumps(
            {
                "cohort": "odd",
                "template": f"{data.name}/pca_mean.vtu",
                "subjects": f"{data.name}/subjects.tsv",
                "runs": "config/runs.tsv",
            }
        ),
    )
    answer = project.snakemake()
    assert answer.returncode == 0, answer.stdout
    assert not list(tmp_path.rglob("pwned"))
    summary = json.loads(
        (project.folder / "results/odd/evaluation/small.json").read_text(encoding="utf-8")
    )
    assert {s["subject_id"] for s in summary["subjects"]} == set(IDS.values())
    # Nobody validates: the columns are null, and nothing has failed.
    assert summary["splits"]["val"] is None
    log = json.loads(
        (project.folder / "results/odd/models/small/training_validation_rmse.json").read_text()
    )
    assert [entry["val_rmse"] for entry in log] == [None]
