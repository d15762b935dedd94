"""A logger gets what configs log, visit by visit, in the order of each config. Imports no torch."""

from cerebro_elastic.reporting.logged import ConfigEnd as ConfigEnd
from cerebro_elastic.reporting.logged import Logged as Logged
from cerebro_elastic.reporting.logged import Logger as Logger
