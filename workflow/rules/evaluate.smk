# run.json, the small receipt of model.pt, says what changed, because Snakemake compares only small
# files by content; model.pt itself is `ancient`: it must exist, whatever its time. outputs.json is a
# receipt, too.


rule evaluate:
    input:
        run=f"{RUN}/run.json",
        model=ancient(f"{RUN}/model.pt"),
        split="data/splits/{task}/seed{seed}.json",
        data=prepared,
    output:
        metrics=f"{RUN}/metrics.json",
        scores=f"{RUN}/scores.npz",
    log:
        f"{RUN}/evaluate.log",
    benchmark:
        f"{RUN}/evaluate.tsv"
    conda:
        ENVIRONMENT
    threads: threads_of
    resources:
        **ON_GPU,
        mem_mb=memory_of,
        runtime=PLAN.evaluate_minutes,
    params:
        settings=lambda w: settings_hash(PARAMS.evaluation(run_of(w))),
    shell:
        "python -m dac.on_gpu python -m dac.evaluate --run $(dirname {output.metrics}) > {log} 2>&1"


rule outputs:
    input:
        run=f"{RUN}/run.json",
        model=ancient(f"{RUN}/model.pt"),
        split="data/splits/{task}/seed{seed}.json",
        data=prepared,
    output:
        arrays=f"{RUN}/outputs.npz",
        receipt=f"{RUN}/outputs.json",
    log:
        f"{RUN}/outputs.log",
    benchmark:
        f"{RUN}/outputs.tsv"
    conda:
        ENVIRONMENT
    threads: threads_of
    resources:
        **ON_GPU,
        mem_mb=memory_of,
        runtime=PLAN.evaluate_minutes,
    shell:
        "python -m dac.on_gpu python -m dac.outputs --run $(dirname {output.receipt}) > {log} 2>&1"
