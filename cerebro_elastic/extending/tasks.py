"""A task trains units: its interface, a unit's job and result, and its batches in the run's order.

Nothing here imports torch; ``state`` has the code that tasks of torch share.
"""

from cerebro_elastic.core.model.configs import HParams as HParams
from cerebro_elastic.core.model.units import Phase as Phase
from cerebro_elastic.core.model.units import Strategy as Strategy
from cerebro_elastic.core.model.units import Unit as Unit
from cerebro_elastic.data.reading.batches import BatchPart as BatchPart
from cerebro_elastic.data.reading.batches import whole as whole
from cerebro_elastic.hop import user_globals
from cerebro_elastic.hop.checkpoint import Still as Still
from cerebro_elastic.hop.generators import generators as generators
from cerebro_elastic.hop.objects import unchanged
from cerebro_elastic.hop.objects.object_graph import GraphRoot as GraphRoot
from cerebro_elastic.hop.objects.object_graph import ObjectGraph as ObjectGraph
from cerebro_elastic.hop.objects.object_graph import made_again as made_again
from cerebro_elastic.hop.objects.object_graph import tree_of as tree_of
from cerebro_elastic.registry import is_users as is_users
from cerebro_elastic.system import arguments
from cerebro_elastic.system import process_settings as process_settings
from cerebro_elastic.training import job_batches as job_batches
from cerebro_elastic.training.array_task import ArrayTask as ArrayTask
from cerebro_elastic.training.array_task import Learner as Learner
from cerebro_elastic.training.array_task import UnitBatches as UnitBatches
from cerebro_elastic.training.array_task import as_found as as_found
from cerebro_elastic.training.hparams import Taker as Taker
from cerebro_elastic.training.hparams import Takers as Takers
from cerebro_elastic.training.metrics import EpochMeans as EpochMeans
from cerebro_elastic.training.metrics import not_finite as not_finite
from cerebro_elastic.training.task import GENERATORS as GENERATORS
from cerebro_elastic.training.task import Exported as Exported
from cerebro_elastic.training.task import Exports as Exports
from cerebro_elastic.training.task import ExportsMerged as ExportsMerged
from cerebro_elastic.training.task import ModelValues as ModelValues
from cerebro_elastic.training.task import Observe as Observe
from cerebro_elastic.training.task import OrdinaryFit as OrdinaryFit
from cerebro_elastic.training.task import ReadsFiles as ReadsFiles
from cerebro_elastic.training.task import SetsThreads as SetsThreads
from cerebro_elastic.training.task import Stopped as Stopped
from cerebro_elastic.training.task import SupportsCheck as SupportsCheck
from cerebro_elastic.training.task import SupportsPrecheck as SupportsPrecheck
from cerebro_elastic.training.task import SupportsTest as SupportsTest
from cerebro_elastic.training.task import Task as Task
from cerebro_elastic.training.task import TaskState as TaskState
from cerebro_elastic.training.task import UnitJob as UnitJob
from cerebro_elastic.training.task import UnitResult as UnitResult
from cerebro_elastic.training.test_metrics import evaluated as evaluated
from cerebro_elastic.training.test_metrics import named_as_test as named_as_test
from cerebro_elastic.training.test_metrics import row_by_row as row_by_row

combined_arguments = arguments.combined
select_arguments = arguments.select
object_digest = unchanged.digest
UserGlobals = user_globals.UserGlobals
