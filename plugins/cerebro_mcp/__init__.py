"""A run for agents: a server of the Model Context Protocol, by which a program reads a run and proposes
configs.

``server`` speaks the protocol, ``tools`` has an agent's calls, ``text`` the text that it reads.
"""
