"""A config's state, and its way from one unit to the next.

- ``objects``: the objects of a user's code, with their identity (docs/design/contract.md); ``structure``:
  changes of a model by training; ``optimizer_state``: by names; ``generators``: states of random generators.
- ``user_globals``: variables that do not hop and may not change.
- ``checkpoint``: a state as a tree, as tensors and as files that are complete or absent.

``worker/saving.py`` writes it behind the next unit, ``worker/state_fetcher.py`` brings it before.
"""
