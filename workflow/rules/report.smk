# One page to show around; not part of `all`. The picture of the rules comes from Snakemake itself:
# a second one that takes no lock, no profile and no job, and only prints its graph.


rule report:
    input:
        expand("results/tables/{table}.html", table=RESULTS.tables),
        expand("results/figures/{figure}.png", figure=RESULTS.figures),
        TARGETS["summary"],
    output:
        "results/report.html",
    log:
        "logs/report.log",
    benchmark:
        "logs/report.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    params:
        suite=RESULTS.suite,
        settings=settings_hash(config),
        snakefile=os.path.relpath(workflow.main_snakefile),
    shell:
        "( python -m snakemake all --snakefile {params.snakefile:q} --rulegraph dot --nolock"
        " --profile none --workflow-profile none --quiet --config suite={params.suite}"
        " | python -m dac.report --suite {params.suite} --rulegraph /dev/stdin --out {output}"
        " ) 2> {log}"
