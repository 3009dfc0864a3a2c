"""The report: the tables and figures of a suite, and where they come from, as one HTML page."""
