"""Encode the arguments and the result of a task function, guided by its signature and annotations.

The body of a call is JSON: `[[positional…], {keyword: …}]`, with each value encoded as in relier.codec.

A parameter whose annotation names a model (dataclass, msgspec.Struct, pydantic) or an enum has a Reader that rebuilds
the value from plain data. It uses msgspec, or pydantic where a pydantic class is involved or msgspec cannot tell the
members of a union apart. A value pushed to such a parameter is rebuilt once during the push and compared; if it would
change on the way, the push raises. This check knows only the classes of the pushing process: a worker with other code
may still refuse the value.

The parameter annotated with TaskContext and those with `Depends(…)` are filled in where the task runs
(`with_injected`); callers do not pass them.
"""

from relier.arguments.annotations import classes_in
from relier.arguments.depends import INJECTED, Dependency, Depends
from relier.arguments.signature import Arguments, call_in

__all__ = ["INJECTED", "Arguments", "Dependency", "Depends", "call_in", "classes_in"]
