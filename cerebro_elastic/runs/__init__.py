"""Whole runs: started, resumed, opened afterwards, verified, replayed."""
