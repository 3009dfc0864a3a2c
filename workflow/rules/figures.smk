# One module of dac/figures per kind of figure; what it reads of every run depends on the kind.


rule figure:
    input:
        lambda w: suites.figure_inputs(figure_of(w)),
    output:
        pdf="results/figures/{figure}.pdf",
        png="results/figures/{figure}.png",
    log:
        "logs/figures/{figure}.log",
    benchmark:
        "logs/figures/{figure}.tsv"
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
