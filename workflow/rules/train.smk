# The state for resuming is in runs/.../work, which is no output: outputs of a failed job are deleted,
# and a resubmitted job must find it. `retries` is set in the profiles only, because inside a rule the
# Slurm executor multiplies it. `exec`: signals must reach training, not a shell around it.


rule train:
    input:
        split="data/splits/{task}/seed{seed}.json",
        data=prepared,
        pretrained=pretrained,
    output:
        model=f"{RUN}/model.pt",
        history=f"{RUN}/history.csv",
        run=f"{RUN}/run.json",
    log:
        f"{RUN}/train.log",
    benchmark:
        f"{RUN}/train.tsv"
    conda:
        ENVIRONMENT
    threads: threads_of
    resources:
        **ON_GPU,
        mem_mb=memory_of,
        runtime=train_minutes,
    params:
        settings=lambda w: settings_hash(run_of(w).identity()),
    shell:
        "exec python -m dac.on_gpu python -m dac.train"
        " --task {wildcards.task} --method {wildcards.method} --seed {wildcards.seed}"
        " --out $(dirname {output.model}) > {log} 2>&1"
