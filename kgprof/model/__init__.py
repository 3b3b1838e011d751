"""The vocabulary: what a Recording holds, and the Profile that every renderer reads.

Frozen msgspec Structs, no logic beyond sums and properties. Units stand in the names. A thing that
was not measured is ``Skipped(reason)``, never zero. Every other room writes ``from kgprof import
model as m``. Each module imports only modules above it.
"""

from kgprof.model.accounts import *
from kgprof.model.bisect import *
from kgprof.model.capturing import *
from kgprof.model.collective_calls import *
from kgprof.model.comparison import *
from kgprof.model.compile_records import *
from kgprof.model.compiled_work import *
from kgprof.model.evaluation import *
from kgprof.model.findings import *
from kgprof.model.fix import *
from kgprof.model.kernels import *
from kgprof.model.limits import *
from kgprof.model.memory_records import *
from kgprof.model.passes import *
from kgprof.model.profile import *
from kgprof.model.recording import *
from kgprof.model.structs import *
from kgprof.model.sweep import *
from kgprof.model.times import *
from kgprof.model.trend import *
