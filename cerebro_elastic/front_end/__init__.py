"""Runs that are started from Python: in a script, at a prompt, or in a notebook."""
