"""Columns of data as sources give them and their check, users' datasets, and processes that make batches."""

from cerebro_elastic.data.column_checks import check_given as check_given
from cerebro_elastic.data.kinds.values import as_column as as_column
from cerebro_elastic.data.manifest import Split as Split
from cerebro_elastic.data.ragged import Arrays as Arrays
from cerebro_elastic.data.ragged import Columns as Columns
from cerebro_elastic.data.reading.batches import in_worker_processes as in_worker_processes
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory as DatasetFactory
from cerebro_elastic.data.reading.datasets import indivisible as indivisible
from cerebro_elastic.data.reading.datasets import is_stream as is_stream
from cerebro_elastic.data.reading.datasets import settings_of as settings_of
from cerebro_elastic.data.reading.loader_settings import LoaderSettings as LoaderSettings
from cerebro_elastic.data.reading.made_once import Batches as Batches
from cerebro_elastic.data.reading.partition import Partition as Partition
from cerebro_elastic.data.user_state import ForeignGenerators as ForeignGenerators
from cerebro_elastic.data.user_state import seed_of_batch as seed_of_batch
