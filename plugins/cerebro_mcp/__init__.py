"""A run for agents: a server of the Model Context Protocol, by which a program reads a run and proposes
configs.

``server`` speaks the protocol, ``tools`` has what an agent can call, ``text`` has what it reads.
"""
