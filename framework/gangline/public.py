"""The names of the public API, gathered from the rooms; plugin authors import them from `gangline`."""

from gangline import model, moments, quantity
from gangline.api.cycle_state import Cycle, StateKey
from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import RESERVATION_ENDED, Action, ClusterEvent, EventHint, on
from gangline.api.hookspecs import hookimpl
from gangline.api.lifting import per_node
from gangline.api.outlook import ExpectedStart
from gangline.api.placement import Placement
from gangline.api.plugin import Clock, Handle, State, WaitingPod
from gangline.api.pod_group import (
    ANYWHERE,
    GroupAttempt,
    Membership,
    PodGroup,
    Problem,
    Role,
    SubGroup,
    TopologyConstraint,
)
from gangline.api.proposal import Proposal, Victims
from gangline.api.scoring import default_normalize
from gangline.api.term import Term
from gangline.clock import SystemClock, rfc3339
from gangline.deadline import GANG_SECONDS, Deadline
from gangline.durations import Seconds
from gangline.errors import (
    ApiError,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    GanglineError,
    Gone,
    Invalid,
    InvalidObject,
    NotFound,
    PluginError,
    TooManyRequests,
    Unavailable,
)
from gangline.failpoints import failpoint
from gangline.groups import FOLLOWED as group_watches
from gangline.groups import keys as group_keys
from gangline.groups import parsing as annotation_values
from gangline.groups.gpu_count import gpus_of
from gangline.groups.owners import OwnerKey, key_of
from gangline.groups.progress import Progress, expected
from gangline.groups.strategy import PLACEMENT_STRATEGY, STRATEGIES, Strategy, strategy_of
from gangline.kube import resources
from gangline.kube.claim_writing import ClaimWriter
from gangline.kube.interface import Client, PatchKind
from gangline.kube.outbox import LANDING
from gangline.overview import gpu_use
from gangline.sizes import BoundedCache, quick_size_of, size_of
from gangline.state import node_selection, requests, tolerations
from gangline.state.changes import NODE, PODS, SPECS, Changes
from gangline.state.kept import KeptColumns
from gangline.state.labels import LabelColumn
from gangline.state.locality import reaches_beyond
from gangline.state.node_view import Int64Column, NodeView, Rows
from gangline.state.numbering import renumber
from gangline.state.pods import LabelSet, PodClass, PodInfo, memo_key
from gangline.state.selectors import EVERYTHING, NOTHING, Selector, compile_selector, from_map
from gangline.state.stores import Store
from gangline.state.taints import TaintKey
from gangline.state.topology import HOST, NO_DOMAIN, Domains, Level, Named, Topology
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
from gangline.wire import claim_templates, custom_resources, permissions, scheduling_map, texts

__all__ = [
    "ANYWHERE",
    "EVERYTHING",
    "GANG_SECONDS",
    "HOST",
    "LANDING",
    "NODE",
    "NOTHING",
    "NO_DOMAIN",
    "PLACEMENT_STRATEGY",
    "PODS",
    "RESERVATION_ENDED",
    "SKIP",
    "SKIP_CLASS",
    "SPECS",
    "STRATEGIES",
    "SUCCESS",
    "Action",
    "ApiError",
    "BoolColumn",
    "BoundedCache",
    "Changes",
    "ClaimWriter",
    "Client",
    "Clock",
    "ClusterEvent",
    "Code",
    "CodeColumn",
    "ConfigError",
    "Conflict",
    "Cycle",
    "Deadline",
    "DeadlineExceeded",
    "Diagnosis",
    "Domains",
    "EventHint",
    "ExpectedStart",
    "Forbidden",
    "GanglineError",
    "Gone",
    "GroupAttempt",
    "Handle",
    "Int64Column",
    "Invalid",
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
    "OwnerKey",
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
    "Seconds",
    "Selector",
    "State",
    "StateKey",
    "Status",
    "Store",
    "Strategy",
    "SubGroup",
    "SystemClock",
    "TaintKey",
    "Term",
    "TooManyRequests",
    "Topology",
    "TopologyConstraint",
    "Tracker",
    "Transaction",
    "Unavailable",
    "Victims",
    "WaitingPod",
    "annotation_values",
    "claim_templates",
    "codes",
    "compile_selector",
    "custom_resources",
    "default_normalize",
    "expected",
    "failpoint",
    "from_map",
    "gpu_use",
    "gpus_of",
    "group_keys",
    "group_watches",
    "hookimpl",
    "key_of",
    "memo_key",
    "model",
    "moments",
    "node_selection",
    "on",
    "per_node",
    "permissions",
    "quantity",
    "quick_size_of",
    "reaches_beyond",
    "renumber",
    "requests",
    "resources",
    "rfc3339",
    "scheduling_map",
    "size_of",
    "strategy_of",
    "texts",
    "tolerations",
    "unschedulable",
    "wait",
]
