"""A run in the store: its record, and what each part may write to it.

- ``keys``: the names of the keys, and their contents.
- ``record``: ``Record``, for reading; every process has one.
- ``leader``, ``worker``, ``nodes``, ``operators``: a ledger each, with the verbs of that part. A ledger holds
  a ``Record`` and is the only way in which its part writes.
- ``transactions``: writes a verb as one guarded transaction, which is one event.
- ``history``: events and state from keys; ``foreign``: keys that were not written by the run's processes.
- ``journal``: the history in a file.

A verb whose guard does not hold changes nothing and returns ``None`` or ``False``: the run's state has
changed, and the watch will show how. A transaction whose answer was lost (``TxnUnknown``) is sent again only
where its guard lets it through once.
"""
