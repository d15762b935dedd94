"""Errors of this package. Their messages name the mistake, the rule and the next step."""

from cerebro_elastic.errors import CerebroError as CerebroError
from cerebro_elastic.errors import CheckpointError as CheckpointError
from cerebro_elastic.errors import DataError as DataError
from cerebro_elastic.errors import GroupBroken as GroupBroken
from cerebro_elastic.errors import MissingExtra as MissingExtra
from cerebro_elastic.errors import NoTestSet as NoTestSet
from cerebro_elastic.errors import RecipeError as RecipeError
from cerebro_elastic.errors import RunError as RunError
from cerebro_elastic.errors import RunFailed as RunFailed
from cerebro_elastic.errors import SameConfig as SameConfig
from cerebro_elastic.errors import ScheduleError as ScheduleError
from cerebro_elastic.errors import SearchError as SearchError
from cerebro_elastic.errors import TaskError as TaskError
from cerebro_elastic.errors import TrackerAway as TrackerAway
from cerebro_elastic.errors import did_you_mean as did_you_mean
from cerebro_elastic.registry import install_extra as install_extra
from cerebro_elastic.registry import pip_install as pip_install
