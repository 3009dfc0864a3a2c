# Shared by the rules: parameters, runs of the suite, paths and what jobs may use.

import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from dac.config import load, suites
from dac.io import environment
from dac.io.errors import UserError
from dac.io.files import canonical_hash
from dac.workflow import cost, prepared_records, request, stale_lock
from dac.workflow.memory import Memory

environment.apply(starts_jobs=workflow.is_main_process)
if workflow.is_main_process and (executor := request.executor(sys.argv[1:])):
    owner = stale_lock.take_over(Path(".snakemake"), is_local=executor == "local")
    logger.addFilter(stale_lock.advise)
records = Memory(
    folder=Path(".snakemake/metadata"),
    archive=Path("provenance/snakemake.tgz"),
    stamp=Path(".snakemake/dac-provenance"),
    untracked=frozenset({"report"}),
)

if others := sorted(set(workflow.config_settings.overwrite_config) - {"suite"}):
    raise WorkflowError(
        f"--config gives {', '.join(others)}; only suite=NAME may be given there. "
        "Change params.yaml, which every stage reads"
    )
try:
    PARAMS = load(Path("params.yaml"))
    # Not Snakemake's `configfile`, which reads the file before our checks and hangs on a bad one.
    RESULTS = suites.results(PARAMS, config.get("suite") and str(config["suite"]))
    records.restore()
    if workflow.is_main_process:  # not in a job, beside the Snakemake that records it
        prepared_records.correct(records.folder, list(PARAMS.file.prepare))
except UserError as error:
    raise WorkflowError(str(error))

TARGETS = suites.targets(PARAMS, RESULTS)
RUN = "runs/{task}/{method}/seed{seed}"
PRETRAINED = suites.pretrained_folder("{data}", "{backbone}")
ENVIRONMENT = "../../environment.yml"


wildcard_constraints:
    task="[a-z0-9][a-z0-9+.-]*",
    method="[a-z0-9][a-z0-9+.-]*",
    data="|".join(PARAMS.file.prepare),
    backbone="|".join(PARAMS.file.plan.gigaflops_per_view),
    seed="[0-9]+",
    table="|".join(map(re.escape, PARAMS.file.aggregate.tables)),
    figure="|".join(map(re.escape, PARAMS.file.figures.drawn)),


# --- inputs and parameters of jobs --------------------------------------------------------------


def run_of(wildcards):
    try:
        return PARAMS.run(wildcards.task, wildcards.method, int(wildcards.seed))
    except UserError as error:
        raise WorkflowError(str(error))


def data_of(wildcards):
    try:
        return wildcards.get("data") or PARAMS.task(wildcards.task).data
    except UserError as error:
        raise WorkflowError(str(error))


def prepared(wildcards):
    name = data_of(wildcards)
    path = Path("data/prepared", name, "meta.json")
    if name == "folder" and path.exists():
        check_own_pictures()
    return str(path)


def check_own_pictures():
    """They are prepared by hand, which Snakemake does not know: it would remove finished runs first."""
    from dac.data.prepared import check_sides, load as load_prepared

    try:
        check_sides(
            load_prepared(Path("data"), "folder"), PARAMS.file.prepare["folder"]
        )
    except UserError as error:
        raise WorkflowError(str(error))


def pretrained(wildcards):
    """The pre-training that a run starts from: a list of no or one file."""
    train = run_of(wildcards).train
    folder = suites.pretrained_folder(data_of(wildcards), train.backbone)
    return [] if train.initial == "random" else [f"{folder}/run.json"]


def pretrain_of(wildcards):
    return PARAMS.pretrain(wildcards.data, wildcards.backbone)


def table_of(wildcards):
    return PARAMS.file.aggregate.tables[wildcards.table]


def figure_of(wildcards):
    return PARAMS.file.figures.drawn[wildcards.figure]


def histogram_bins(wildcards):
    """Changing them redraws histograms only."""
    is_drawn = figure_of(wildcards).kind in ("histogram", "models")
    return PARAMS.file.figures.histogram_bins if is_drawn else None


def settings_hash(settings):
    """A parameter of a rule: when it changes, exactly the jobs that it decides run again.

    The order of a model's entries counts: it is that of columns and panels.
    """
    return canonical_hash(
        settings if isinstance(settings, dict) else settings.model_dump_json()
    )


# --- what jobs may use --------------------------------------------------------------------------


def queue(kind):
    """A site's names, from the environment (slurm/config.yaml says which); else Slurm's defaults."""
    names = {"slurm_partition": f"DAC_{kind}_PARTITION", "slurm_account": "DAC_ACCOUNT"}
    return {
        key: os.environ[name] for key, name in names.items() if os.environ.get(name)
    }


PLAN = PARAMS.file.plan
ON_CPU = {"mem_mb": PLAN.cpu_memory_mb, "runtime": PLAN.cpu_minutes, **queue("CPU")}
ON_GPU = {
    "gpu": 1,
    "gpu_model": os.environ.get("DAC_GPU_MODEL", "a40"),
    "nodes": 1,
    **queue("GPU"),
}


def memory_of(wildcards):
    return PLAN.memory_mb[data_of(wildcards)]


def threads_of(wildcards):
    return PLAN.threads[data_of(wildcards)]


def train_minutes(wildcards):
    return cost.job_minutes(PARAMS, cost.train_hours(PARAMS, run_of(wildcards)))


def pretrain_minutes(wildcards):
    return cost.job_minutes(PARAMS, cost.pretrain_hours(PARAMS, pretrain_of(wildcards)))
