# Own pictures have no receipt: `python -m dac.prepare --data folder --pictures FOLDER` comes first.


rule prepare:
    input:
        lambda w: [] if w.data == "folder" else f"data/receipts/{w.data}.json",
    output:
        # kept while the new set is made, which replaces it when it is whole
        update("data/prepared/{data}/meta.json"),
    log:
        "logs/prepare/{data}.log",
    benchmark:
        "logs/prepare/{data}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ON_CPU,
    params:
        settings=lambda w: settings_hash(
            PARAMS.file.prepare[w.data].model_dump(
                mode="json", include={"side", "size"}
            )
        ),
    shell:
        "python -m dac.prepare --data {wildcards.data} > {log} 2>&1"
