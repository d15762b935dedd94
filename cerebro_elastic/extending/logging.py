"""A logger gets the rows that configs log, visit by visit, in the order of each config. Imports no torch."""

from cerebro_elastic.core.model.configs import HParams as HParams
from cerebro_elastic.reporting.logged import ConfigEnd as ConfigEnd
from cerebro_elastic.reporting.logged import EndStatus as EndStatus
from cerebro_elastic.reporting.logged import Logged as Logged
from cerebro_elastic.reporting.logged import Logger as Logger
from cerebro_elastic.reporting.logged import Tracker as Tracker
from cerebro_elastic.system.addresses import at_home as at_home
