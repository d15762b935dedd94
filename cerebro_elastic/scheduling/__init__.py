"""Policies of live runs: at each moment, which idle node takes which unit."""
