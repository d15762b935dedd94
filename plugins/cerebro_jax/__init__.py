"""JAX as a task: plain functions with optax, or Flax NNX."""
