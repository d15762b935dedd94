"""What a config's state is, and how it travels from one unit to the next.

- ``objects``: what a user's code keeps, with its identity (docs/design/contract.md); ``structure``: what
  training has changed in a model; ``optimizer_state``: by names; ``generators``: where random numbers stand.
- ``user_globals``: what does not hop and may not change.
- ``checkpoint``: a state as a tree, as tensors and as files that are complete or not there.

``worker/saving.py`` writes it behind the next unit, ``worker/state_fetcher.py`` brings it before.
"""
