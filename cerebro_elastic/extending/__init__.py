"""The interface for authors of plugins. Nothing else of the package is meant for them; our own plugins import
nothing else either.

- ``tasks``: an adapter of a training library (entry-point group ``cerebro.tasks``)
- ``parallelism``: a way of spreading a unit over ranks (``cerebro.parallel``)
- ``state``: code that both share if they use torch, such as the state that hops
- ``recipes``: the sections of a recipe (``cerebro.tasks.sections``, ``cerebro.parallel.sections``)
- ``deciding``: a policy of live runs (``cerebro.schedulers``), a search procedure or a sampler
  (``cerebro.search``, ``cerebro.samplers``)
- ``planning``: a planner of the whole problem, and a policy that follows it
- ``logging``: a logger (``cerebro.loggers``) or a tracker (``cerebro.trackers``)
- ``running``: for launchers of hosts on a cluster (``cerebro.launchers``), front ends that start and show
  runs, and servers of a run to other programs (``cerebro.servers``)
- ``data``, ``errors``: columns and loaders, errors

Each name is imported from its module: importing torch takes seconds, and only some of them need it. ``import
X as X`` marks the exports of a module.
"""
