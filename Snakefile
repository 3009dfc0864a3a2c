"""Everything from the download to the tables and figures of a suite (params.yaml: `suites`).

snakemake --cores all                       the suite that params.yaml names
snakemake --profile slurm all               the paper, on a cluster
snakemake --cores all table1                a table, a figure, a task, or any file by its path
"""

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/prepare.smk"
include: "workflow/rules/split.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/targets.smk"


rule all:
    default_target: True
    input:
        TARGETS["tables"],
        TARGETS["figures"],
        TARGETS["summary"],
    localrule: True


onsuccess:
    records.save()


onerror:
    prepared_records.correct(records.folder, list(PARAMS.file.prepare))
    records.save()
