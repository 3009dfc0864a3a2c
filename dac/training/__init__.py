"""The training loops, their batches and their state."""
