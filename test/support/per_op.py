"""A test of a case of an op, as one test for each op: thousands of tests of a fraction of a
millisecond take pytest longer to list and to report than to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from rlx.ir.op import Op
from support.samples import Case

__all__ = ["each_op"]

Check = Callable[[Case], None]


def each_op(cases: Iterable[Case]) -> Callable[[Check], Callable[[type[Op]], None]]:
    """Decorate the test of a case: it runs for all cases of an op, and every case that fails is
    told of by name."""
    found: dict[type[Op], list[Case]] = {}
    for case in cases:
        found.setdefault(case.op, []).append(case)

    def of_op(check: Check) -> Callable[[type[Op]], None]:
        def test(op: type[Op]) -> None:
            errors: list[Exception] = []
            for case in found[op]:
                try:
                    check(case)
                except Exception as e:
                    e.add_note(f"the case is {case}")
                    errors.append(e)
            if len(errors) == 1:
                raise errors[0]
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(found[op])} cases", errors)

        test.__doc__ = check.__doc__
        return pytest.mark.parametrize("op", found, ids=lambda op: op.name)(test)

    return of_op
