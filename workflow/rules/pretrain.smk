# One network per data set and backbone, shared by every method and seed (Table 6).


rule pretrain:
    input:
        "data/prepared/{data}/meta.json",
    output:
        run=f"{PRETRAINED}/run.json",
        model=f"{PRETRAINED}/model.pt",
        history=f"{PRETRAINED}/history.csv",
    log:
        f"{PRETRAINED}/pretrain.log",
    benchmark:
        f"{PRETRAINED}/pretrain.tsv"
    conda:
        ENVIRONMENT
    threads: threads_of
    resources:
        **ON_GPU,
        mem_mb=memory_of,
        runtime=pretrain_minutes,
    params:
        settings=lambda w: settings_hash(pretrain_of(w).identity()),
    shell:
        "exec python -m dac.on_gpu python -m dac.pretrain --data {wildcards.data}"
        " --backbone {wildcards.backbone} --out $(dirname {output.run}) > {log} 2>&1"
