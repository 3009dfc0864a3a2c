"""From a trained network to the numbers of a run."""
