"""Interfaces are in core/ports.py (Instance, Policy, Trial, Search): import them from there; delete this file."""
