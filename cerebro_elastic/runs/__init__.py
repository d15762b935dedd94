"""Whole runs: start and join them (``start``), decide on live ones (``control``), read their results
(``results``), forecast them (``forecast``), and check that units equal an ordinary fit (``exactness``)."""
