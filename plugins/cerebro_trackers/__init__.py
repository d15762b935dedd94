"""The trackers MLflow and Weights & Biases: programs that keep runs, their configs and their curves.

``arguments`` has their arguments in a recipe, ``tags`` the common tags of both.
"""
