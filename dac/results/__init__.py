"""From the metrics of many runs to tables beside the paper's values."""
