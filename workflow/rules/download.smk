# On the submit host, because compute nodes have no internet. What came is told by its receipt.


rule download:
    output:
        "data/receipts/{data}.json",
    log:
        "logs/download/{data}.log",
    benchmark:
        "benchmarks/download/{data}.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        settings=lambda w: settings_hash(PARAMS.file.download.sets[w.data]),
    shell:
        "python -m dac.download --data {wildcards.data} --receipt {output} > {log} 2>&1"
