"""What Snakemake and DVC need beside the stages: cost, memory of finished jobs, cache check."""
