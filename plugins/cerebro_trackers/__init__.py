"""The trackers MLflow and Weights & Biases: programs that keep runs, their configs and their curves.

``arguments`` has what a recipe may give them, ``tags`` how both name what they have.
"""
