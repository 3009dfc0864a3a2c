# On the submit host, because compute nodes have no internet. The receipt says what was downloaded.


rule download:
    output:
        "data/receipts/{data}.json",
    log:
        "logs/download/{data}.log",
    benchmark:
        "logs/download/{data}.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        settings=lambda w: settings_hash(PARAMS.file.download.sets[w.data]),
    shell:
        "python -m dac.download --data {wildcards.data} --receipt {output} > {log} 2>&1"
