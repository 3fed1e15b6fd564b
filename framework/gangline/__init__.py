"""Gangline: a GPU scheduler for Kubernetes that sees the cluster as columns, with plugins in Python.

This module is the public API for plugin authors: everything that a plugin needs is imported from here.
"""

from gangline import model
from gangline.api.cycle_state import Cycle, StateKey
from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import Action, ClusterEvent, EventHint, on
from gangline.api.hookspecs import hookimpl
from gangline.api.placement import Placement
from gangline.api.plugin import Clock, Handle, State, WaitingPod, per_node
from gangline.api.pod_group import ANYWHERE, GroupAttempt, Membership, PodGroup, Problem, Role, TopologyConstraint
from gangline.api.proposal import Proposal, Victims
from gangline.api.scoring import default_normalize
from gangline.deadline import GANG_SECONDS, Deadline
from gangline.errors import (
    ApiError,
    Conflict,
    DeadlineExceeded,
    GanglineError,
    InvalidObject,
    NotFound,
    PluginError,
    TooManyRequests,
    Unavailable,
)
from gangline.groups import WATCHES as group_watches
from gangline.groups.progress import Progress, expected
from gangline.kube import resources
from gangline.kube.interface import PatchKind
from gangline.sizes import BoundedCache, size_of
from gangline.state import node_selection, requests, tolerations
from gangline.state.changes import NODE, PODS, Changes
from gangline.state.kept import KeptColumns
from gangline.state.labels import LabelColumn
from gangline.state.locality import reaches_beyond
from gangline.state.nodes import Int64Column, NodeView, Rows
from gangline.state.pods import LabelSet, PodClass, PodInfo
from gangline.state.selectors import EVERYTHING, NOTHING, Selector, compile_selector, from_map
from gangline.state.stores import Store
from gangline.state.taints import TaintKey
from gangline.state.topology import Domains, Level, Named, Topology
from gangline.state.tracking import Tracker
from gangline.state.transaction import Transaction
from gangline.status import (
    SKIP,
    SKIP_CLASS,
    SUCCESS,
    BoolColumn,
    Code,
    CodeColumn,
    Narrow,
    Reason,
    ScoreColumn,
    Status,
    codes,
    unschedulable,
    wait,
)
from gangline.wire import permissions

__all__ = [
    "ANYWHERE",
    "EVERYTHING",
    "GANG_SECONDS",
    "NODE",
    "NOTHING",
    "PODS",
    "SKIP",
    "SKIP_CLASS",
    "SUCCESS",
    "Action",
    "ApiError",
    "BoolColumn",
    "BoundedCache",
    "Changes",
    "Clock",
    "ClusterEvent",
    "Code",
    "CodeColumn",
    "Conflict",
    "Cycle",
    "Deadline",
    "DeadlineExceeded",
    "Diagnosis",
    "Domains",
    "EventHint",
    "GanglineError",
    "GroupAttempt",
    "Handle",
    "Int64Column",
    "InvalidObject",
    "KeptColumns",
    "LabelColumn",
    "LabelSet",
    "Level",
    "Membership",
    "Named",
    "Narrow",
    "NodeView",
    "NotFound",
    "PatchKind",
    "Placement",
    "PluginError",
    "PodClass",
    "PodGroup",
    "PodInfo",
    "Problem",
    "Progress",
    "Proposal",
    "Reason",
    "Role",
    "Rows",
    "ScoreColumn",
    "Selector",
    "State",
    "StateKey",
    "Status",
    "Store",
    "TaintKey",
    "TooManyRequests",
    "Topology",
    "TopologyConstraint",
    "Tracker",
    "Transaction",
    "Unavailable",
    "Victims",
    "WaitingPod",
    "codes",
    "compile_selector",
    "default_normalize",
    "expected",
    "from_map",
    "group_watches",
    "hookimpl",
    "model",
    "node_selection",
    "on",
    "per_node",
    "permissions",
    "reaches_beyond",
    "requests",
    "resources",
    "size_of",
    "tolerations",
    "unschedulable",
    "wait",
]
