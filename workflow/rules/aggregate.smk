# Metrics of finished runs -> tables. `python -m dac.aggregate` by hand also works on half a suite.


rule table:
    input:
        lambda w: suites.of_runs(suites.runs(table_of(w)), "metrics.json"),
        "dac/results/paper_values.csv",
    output:
        multiext("results/tables/{table}", ".csv", ".md", ".tex", ".html"),
    log:
        "logs/aggregate/{table}.log",
    benchmark:
        "logs/aggregate/{table}.tsv"
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
        suites.of_runs(suites.all_runs(RESULTS.grids().values()), "metrics.json"),
    output:
        runs=f"results/summary/{RESULTS.suite}/runs.csv",
        metrics=f"results/summary/{RESULTS.suite}/metrics.json",
    log:
        "logs/aggregate/runs.log",
    benchmark:
        "logs/aggregate/runs.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ON_CPU,
    params:
        suite=RESULTS.suite,
        tables={name: settings_hash(table) for name, table in RESULTS.tables.items()},
    shell:
        "python -m dac.aggregate --suite {params.suite} --runs-only --out $(dirname {output.runs})"
        " > {log} 2>&1"
