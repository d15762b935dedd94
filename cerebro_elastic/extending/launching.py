"""For launchers: what starts ``cerebro host`` on the machines of a cluster."""

from __future__ import annotations

from cerebro_elastic.config import GRACE, StoreSettings
from cerebro_elastic.recipes import load_recipe
from cerebro_elastic.recipes.fields import NodeRange, node_range
from cerebro_elastic.runs.folder import RunFolder, check_id, default_home, run_folder
from cerebro_elastic.runs.live import Watcher
from cerebro_elastic.runs.results.result import RunResult
from cerebro_elastic.runs.start.etcd_server import end_of, keep_record, store_for_hosts
from cerebro_elastic.runs.start.host import ENDED
from cerebro_elastic.system.departure import interrupts_at_rest

__all__ = [
    "ENDED",
    "GRACE",
    "NodeRange",
    "RunFolder",
    "RunResult",
    "StoreSettings",
    "Watcher",
    "check_id",
    "default_home",
    "end_of",
    "interrupts_at_rest",
    "keep_record",
    "load_recipe",
    "node_range",
    "run_folder",
    "store_for_hosts",
]
