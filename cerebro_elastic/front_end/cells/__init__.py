"""What the cells of a notebook define, in files that the processes of a run import.

``definitions.py`` writes classes, functions and all that they use; ``expressions.py`` writes the values among
those; ``pickled.py`` is for what has no source, if the recipe allows it.
"""
