"""scikit-learn's estimators that have ``partial_fit``, and boosters by continued training, as tasks."""
