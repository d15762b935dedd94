"""For launchers, which start ``cerebro host`` on the machines of a cluster, for front ends such as
``CerebroTrainer``, which start runs from Python objects, and for servers of a run to other programs."""

from cerebro_elastic.config import GRACE as GRACE
from cerebro_elastic.config import StoreSettings as StoreSettings
from cerebro_elastic.config import settings_of_run as settings_of_run
from cerebro_elastic.core.model.configs import ConfigStart as ConfigStart
from cerebro_elastic.front_end.cells import import_folder as import_folder
from cerebro_elastic.front_end.notebook_view import in_notebook as in_notebook
from cerebro_elastic.front_end.objects import References as References
from cerebro_elastic.front_end.objects import root_of as root_of
from cerebro_elastic.front_end.run import Interrupted as Interrupted
from cerebro_elastic.front_end.run import OnInterrupt as OnInterrupt
from cerebro_elastic.recipes import load_recipe as load_recipe
from cerebro_elastic.recipes.fields import NodeRange as NodeRange
from cerebro_elastic.recipes.fields import node_range as node_range
from cerebro_elastic.reporting.results import ConfigResult as ConfigResult
from cerebro_elastic.reporting.tables import brief as brief
from cerebro_elastic.runs.arguments import checked as checked
from cerebro_elastic.runs.folder import RunFolder as RunFolder
from cerebro_elastic.runs.folder import check_id as check_id
from cerebro_elastic.runs.folder import home_of as home_of
from cerebro_elastic.runs.folder import run_folder as run_folder
from cerebro_elastic.runs.results.result import RunResult as RunResult
from cerebro_elastic.runs.run import Run as Run
from cerebro_elastic.runs.start.etcd_server import end_of as end_of
from cerebro_elastic.runs.start.etcd_server import keep_record as keep_record
from cerebro_elastic.runs.start.etcd_server import store_for_hosts as store_for_hosts
from cerebro_elastic.runs.start.host import ENDED as ENDED
from cerebro_elastic.runs.terminal_view import TerminalView as TerminalView
from cerebro_elastic.runs.terminal_view import Watcher as Watcher
from cerebro_elastic.search import studies as studies
from cerebro_elastic.store.ledger.operators import Allowance as Allowance
from cerebro_elastic.system.departure import interrupts_at_rest as interrupts_at_rest
from cerebro_elastic.system.words import number as number
from cerebro_elastic.system.words import with_name as with_name
from cerebro_elastic.training.unit_runner import make_task as make_task
