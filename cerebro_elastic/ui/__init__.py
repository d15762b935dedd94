"""The live page: a local web server that shows runs while they go on, and does what people ask of them.

``feed.py`` follows one run and writes what the page shows to a ``Board``. The server streams each change of
the board to the browsers. The page itself is in ``assets``: HTML, CSS and JavaScript, without a build.
"""
