"""Keras 3 as a task, on the backends jax and torch."""
