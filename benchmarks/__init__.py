"""What our step, augmentation and losses cost, as ratios to floors measured in the same run.

    python -m benchmarks --quick --only a,c

Absolute times depend on the machine and on its other work; ratios of medians, measured in turn,
depend on neither much. docs/performance.md has readings.
"""
