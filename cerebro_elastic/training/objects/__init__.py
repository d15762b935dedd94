"""The objects that a user's code keeps, carried from one unit to the next with their identity.

An ordinary fit keeps one graph of objects in memory: a hook's closure and an attribute hold the same dict, a
tensor is a view of a weight, two layers share a list. A unit's process builds that graph anew by calling the
same constructors. What was *born* there, and where, is surveyed before the state is put back
(``ObjectIndex``); a ``Encoder`` then makes a tree that a checkpoint can hold, in which every object appears
once; a ``Decoder`` gives the values back to the very objects that were born in the same place, so that
whoever else holds them sees them, too. Nothing is ever imported, called or made by a name in a checkpoint,
except containers and values of the standard library and instances of classes that the user's own code has
defined.
"""
