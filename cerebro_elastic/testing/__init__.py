"""Contract tests for authors of plugins.

- ``task_contract``: a task, as a class of tests
- ``policy_contract``, ``search_contract``: policies and searches, by functions
"""
