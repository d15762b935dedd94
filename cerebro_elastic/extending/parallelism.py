"""A parallelism spreads a unit over ranks: its interface, the ranks' group, and helpers that parallelisms
share."""

from cerebro_elastic.training.parallel import collectives as collectives
from cerebro_elastic.training.parallel import construct as constructing
from cerebro_elastic.training.parallel import group as group
from cerebro_elastic.training.parallel.base import WHOLE as WHOLE
from cerebro_elastic.training.parallel.base import LossOf as LossOf
from cerebro_elastic.training.parallel.base import Make as Make
from cerebro_elastic.training.parallel.base import Parallelism as Parallelism
from cerebro_elastic.training.parallel.base import Parts as Parts
from cerebro_elastic.training.parallel.base import Portion as Portion
from cerebro_elastic.training.parallel.base import Sharding as Sharding
from cerebro_elastic.training.parallel.base import Spread as Spread
from cerebro_elastic.training.parallel.base import Stepwise as Stepwise
from cerebro_elastic.training.parallel.base import check_room as check_room
from cerebro_elastic.training.parallel.base import make_parallelism as make_parallelism
from cerebro_elastic.training.parallel.collectives import ranks as ranks
from cerebro_elastic.training.parallel.construct import Zeroed as Zeroed
from cerebro_elastic.training.parallel.data_parallel import Buffers as Buffers
from cerebro_elastic.training.parallel.data_parallel import DataParallel as DataParallel
from cerebro_elastic.training.parallel.data_parallel import averaged_gradients as averaged_gradients
from cerebro_elastic.training.parallel.data_parallel import collected as collected
from cerebro_elastic.training.parallel.data_parallel import portion as portion
from cerebro_elastic.training.parallel.data_parallel import taken as taken
from cerebro_elastic.training.parallel.fsdp import Fsdp as Fsdp
from cerebro_elastic.training.parallel.fsdp import blocks as blocks
from cerebro_elastic.training.parallel.fsdp import repeated as repeated
from cerebro_elastic.training.parallel.group import subgroup as subgroup
from cerebro_elastic.training.parallel.group import together as together
from cerebro_elastic.training.parallel.replicated import Ddp as Ddp
from cerebro_elastic.training.parallel.replicated import Single as Single

construct = constructing.made
