"""Open-set semi-supervised learning: Diversify and Conquer (DAC) and the baselines it compares to."""

__version__ = "0.1.0"
