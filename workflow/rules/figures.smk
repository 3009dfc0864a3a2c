# One module of dac/figures per kind of figure; what it reads of every run depends on the kind.


rule figure:
    input:
        lambda w: grid.figure_inputs(PARAMS, figure_of(w)),
    output:
        pdf="results/figures/{figure}.pdf",
        png=report(
            "results/figures/{figure}.png",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
    log:
        "logs/figures/{figure}.log",
    benchmark:
        "benchmarks/figures/{figure}.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ON_CPU,
    params:
        kind=lambda w: figure_of(w).kind,
        settings=lambda w: settings_hash(figure_of(w)),
        bins=histogram_bins,
    shell:
        "python -m dac.figures.{params.kind} --figure {wildcards.figure}"
        " --out {output.pdf} {output.png} > {log} 2>&1"
