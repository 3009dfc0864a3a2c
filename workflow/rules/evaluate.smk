# Reads model.pt; depends on run.json, its small receipt, which is compared by content.


rule evaluate:
    input:
        f"{RUN}/run.json",
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
        runtime=60,
    params:
        settings=settings_hash(PARAMS.file.evaluate),
    shell:
        "python -m dac.on_gpu python -m dac.evaluate --run $(dirname {output.metrics}) > {log} 2>&1"


rule outputs:
    input:
        f"{RUN}/run.json",
    output:
        f"{RUN}/outputs.npz",
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
        runtime=60,
    shell:
        "python -m dac.on_gpu python -m dac.outputs --run $(dirname {output}) > {log} 2>&1"
