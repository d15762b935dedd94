"""How training has changed what a model consists of, and the same changes made to the next unit's model."""
