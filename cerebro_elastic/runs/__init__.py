"""Whole runs: start and join them (``start``), decide on live ones (``controlled``), read their results
(``results``), forecast them (``forecast``), and check that units equal an ordinary fit (``exactness``)."""
