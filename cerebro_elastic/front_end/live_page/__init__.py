"""The live page: a local web server that shows runs while they are live, and performs people's actions on
them.

``feeds.py`` follows runs and writes the content of a page to its ``Board``. The server streams each change of
the board to the browsers. The page itself is in ``reporting/page``, as a report is the same page.
"""
