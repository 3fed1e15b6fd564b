"""Plugins that help a group without a place: within a block they make do with less for its members."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from gangline.api.pod_group import GroupAttempt
from gangline.failures import cause_of
from gangline.profile.implementations import CompiledProfile, Implementation, said_by


def conceded(impls: Sequence[Implementation], attempt: GroupAttempt) -> AbstractContextManager[bool]:
    """In this block the plugins make do with what they concede; yields whether one concedes anything.

    Raises PluginError.
    """
    return _conceded(impls, attempt) if impls else nullcontext(False)


@contextmanager
def _conceded(impls: Sequence[Implementation], attempt: GroupAttempt) -> Iterator[bool]:
    with ExitStack() as blocks:
        found = [(impl, impl.call(attempt)) for impl in impls]
        for impl, block in found:
            if block is not None:
                blocks.enter_context(_guarded(impl, block))
        yield any(block is not None for _, block in found)


@contextmanager
def _guarded(impl: Implementation, block: AbstractContextManager[None]) -> Iterator[None]:
    """The block of a plugin. An exception on entering or leaving is the plugin's fault; one raised within is not."""
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


def may_help(profile: CompiledProfile, attempt: GroupAttempt) -> bool:
    """Whether a plugin may help a group for which the whole cluster has too little room."""
    said = said_by(map(profile.group_helpers.get, profile.helping_groups), attempt)
    return said is None or any([answer is not False for answer in said])


def group_keys(profile: CompiledProfile, attempt: GroupAttempt) -> list[Hashable] | None:
    """What the answers of the plugins that may help a group follow from; None if one of them promises nothing.

    A plugin that makes room tries where the group would go then, so the plugins that restrict this are asked as well.
    """
    return said_by(map(profile.group_keys.get, profile.trying_groups), attempt)
