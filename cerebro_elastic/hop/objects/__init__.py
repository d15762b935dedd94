"""The objects that a user's code keeps, carried from one unit to the next with their identity.

An ordinary fit keeps one graph of objects in memory: a hook's closure and an attribute hold the same dict, a
tensor is a view of a weight, two layers share a list. A unit's process rebuilds that graph by calling the
same constructors.

- ``ObjectGraph`` indexes the objects and their paths at set-up, before the state is put back
  (``ObjectIndex``).
- ``Encoder`` makes a tree that a checkpoint can hold, in which every object appears once.
- ``Decoder`` writes the values back into the very objects that were at the same paths at set-up, so that all
  their holders see the values.
- Each kind of value is a row of one table (``table.py``), which both use. An object without a row is
  *opaque*: it stays as a constructor has made it. ``unchanged.py`` tests whether it has changed.

Nothing is imported, called or made by a name in a checkpoint, except containers and values of the standard
library and instances of classes that the user's own code has defined.
"""
