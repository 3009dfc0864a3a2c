"""The report: tables, figures and provenance of a suite as one HTML page."""
