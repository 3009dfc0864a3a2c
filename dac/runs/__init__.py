"""What a finished or interrupted run is on disk."""
