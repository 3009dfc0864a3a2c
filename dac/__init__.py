"""Open-set semi-supervised learning: Diversify and Conquer (DAC) and its baselines."""

__version__ = "0.1.0"
