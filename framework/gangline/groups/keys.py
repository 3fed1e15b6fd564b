"""The labels and annotations on pods, owners and groups that define groups and how close their pods have to be."""

from __future__ import annotations

# Gangline

GANG = "gangline.dev/gang"
"""On a Job or its pods: "true" makes it a gang, "false" keeps an indexed Job from being a gang."""
MIN_MEMBER = "gangline.dev/min-member"
"""On a workload or its pods: the least number of members that start together."""
TOPOLOGY_REQUIRED = "gangline.dev/topology-required"
"""The level at which all members have to be in one domain: "rack"."""
TOPOLOGY_PREFERRED = "gangline.dev/topology-preferred"
"""The level at which all members should be in one domain."""
TOPOLOGY_FALLBACK = "gangline.dev/topology-fallback"
"""Levels, each but the last with the waiting time until which it is required: "rack,2m;block,10m;any"."""
MIN_RUNTIME = "gangline.dev/min-runtime"
"""On a workload or its pods: how long a pod runs before it may be preempted for a gang: "30m"."""
GPU_COUNT = "topology.scheduler/gpu-count"
"""On a workload or its pods: how many GPUs the whole workload takes."""

# scheduler-plugins

POD_GROUP = "scheduling.x-k8s.io/pod-group"

# Kueue

KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index"
KUEUE_POD_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index-label"
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
KUEUE_SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"

# KAI

KAI_GROUP = "pod-group-name"
KAI_SUBGROUP = "kai.scheduler/subgroup-name"
KAI_MIN_MEMBER = "kai.scheduler/batch-min-member"
KAI_REQUIRED = "kai.scheduler/topology-required-placement"
KAI_PREFERRED = "kai.scheduler/topology-preferred-placement"
KAI_SEGMENT_SIZE = "kai.scheduler/segment-size"
KAI_SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
KAI_SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"
KAI_POD_INDEX_LABEL = "kai.scheduler/pod-index-label"

# Volcano

VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_TASK = "volcano.sh/task-spec"
VOLCANO_TASK_INDEX = "volcano.sh/task-index"
VOLCANO_MODE = "volcano.sh/network-topology-mode"
VOLCANO_HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"

# Koordinator

KOORDINATOR_GROUP = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_TOTAL = "gang.scheduling.koordinator.sh/total-number"
KOORDINATOR_WAITING_TIME = "gang.scheduling.koordinator.sh/waiting-time"
KOORDINATOR_INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
KOORDINATOR_TOPOLOGY = "gang.scheduling.koordinator.sh/network-topology-spec"

# JobSet

JOB_SET = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_SET_JOB = "jobset.sigs.k8s.io/job-index"
JOB_SET_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOB_SET_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"

# LeaderWorkerSet

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
LWS_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
LWS_SUBGROUP_SIZE = "leaderworkerset.sigs.k8s.io/subgroup-size"
LWS_SUBGROUP_TYPE = "leaderworkerset.sigs.k8s.io/subgroup-policy-type"
LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"

# Deployments

DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
"""On a ReplicaSet: the number of replicas of its Deployment, written by Kubernetes."""
