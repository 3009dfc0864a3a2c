# A second of work: on the submit host, without a place in the queue.


rule split:
    input:
        prepared,
    output:
        "data/splits/{task}/seed{seed}.json",
    log:
        "logs/split/{task}/seed{seed}.log",
    benchmark:
        "logs/split/{task}/seed{seed}.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        settings=lambda w: settings_hash(
            PARAMS.task(w.task).model_dump(mode="json", exclude={"train"})
        ),
    shell:
        "python -m dac.split --task {wildcards.task} --seed {wildcards.seed} > {log} 2>&1"
