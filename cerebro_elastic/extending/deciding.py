"""A policy of live runs takes one moment and makes one choice; a search procedure proposes, stops and resumes
configs; a sampler proposes points of a search space. They are pure. Imports no torch."""

from cerebro_elastic.core.model.configs import HParams as HParams
from cerebro_elastic.core.model.configs import Status as Status
from cerebro_elastic.core.model.interfaces import ConfigView as ConfigView
from cerebro_elastic.core.model.interfaces import Decision as Decision
from cerebro_elastic.core.model.interfaces import Policy as Policy
from cerebro_elastic.core.model.interfaces import Proposal as Proposal
from cerebro_elastic.core.model.interfaces import RemainingWork as RemainingWork
from cerebro_elastic.core.model.interfaces import Resume as Resume
from cerebro_elastic.core.model.interfaces import SchedulingContext as SchedulingContext
from cerebro_elastic.core.model.interfaces import Search as Search
from cerebro_elastic.core.model.interfaces import SearchContext as SearchContext
from cerebro_elastic.core.model.interfaces import Stop as Stop
from cerebro_elastic.core.model.units import Strategy as Strategy
from cerebro_elastic.core.model.units import Unit as Unit
from cerebro_elastic.recipes.search import is_branching as is_branching
from cerebro_elastic.search.constraints import constraint_of as constraint_of
from cerebro_elastic.search.criterion import Criterion as Criterion
from cerebro_elastic.search.criterion import criteria_of as criteria_of
from cerebro_elastic.search.sampling import Labels as Labels
from cerebro_elastic.search.sampling import Sample as Sample
from cerebro_elastic.search.sampling import Sampler as Sampler
from cerebro_elastic.search.sampling import contains as contains
from cerebro_elastic.search.sampling import key as key
from cerebro_elastic.search.sampling import values as values
