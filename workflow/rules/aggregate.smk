# Metrics of finished runs -> tables. `python -m dac.aggregate` by hand works on half a suite, too.


rule table:
    input:
        lambda w: grid.of_runs(grid.runs(PARAMS, table_of(w)), "metrics.json"),
        "dac/paper_values.csv",
    output:
        multiext("results/tables/{table}", ".csv", ".md", ".tex"),
        html=report(
            "results/tables/{table}.html",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        "logs/aggregate/{table}.log",
    benchmark:
        "benchmarks/aggregate/{table}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ON_CPU,
    params:
        settings=lambda w: settings_hash(table_of(w)),
    shell:
        "python -m dac.aggregate --table {wildcards.table} --out results/tables > {log} 2>&1"


rule aggregate:
    input:
        grid.of_runs(grid.all_runs(PARAMS, RESULTS.grids().values()), "metrics.json"),
    output:
        "results/tables/runs.csv",
        "results/tables/metrics.json",
    log:
        "logs/aggregate/runs.log",
    benchmark:
        "benchmarks/aggregate/runs.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ON_CPU,
    params:
        suite=RESULTS.suite,
        tables={name: settings_hash(table) for name, table in RESULTS.tables.items()},
    shell:
        "python -m dac.aggregate --suite {params.suite} --runs-only --out results/tables"
        " > {log} 2>&1"
