"""Parts that methods share: banks, mixing, alignment, graphs, detectors, selections and rules."""
