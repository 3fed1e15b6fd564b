"""Within a block plugins make do with less for the members of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from gangline.api.pod_group import GroupAttempt
from gangline.failures import cause_of
from gangline.profile.implementations import Implementation


@contextmanager
def conceded(impls: Sequence[Implementation], attempt: GroupAttempt) -> Iterator[bool]:
    """What plugins concede holds in the block; yields whether one of them concedes anything. Raises PluginError."""
    with ExitStack() as blocks:
        found = [(impl, impl.call(attempt)) for impl in impls]
        for impl, block in found:
            if block is not None:
                blocks.enter_context(_guarded(impl, block))
        yield any(block is not None for _, block in found)


@contextmanager
def _guarded(impl: Implementation, block: AbstractContextManager[None]) -> Iterator[None]:
    """The block of a plugin; an exception at either end is the plugin's, and one in the block is not."""
    _call(impl, block, is_end=False)
    try:
        yield
    finally:
        _call(impl, block, is_end=True)


def _call(impl: Implementation, block: AbstractContextManager[None], is_end: bool) -> None:
    try:
        if is_end:
            block.__exit__(None, None, None)
        else:
            block.__enter__()
    except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
        raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)
