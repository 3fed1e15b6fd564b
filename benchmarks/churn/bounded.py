"""The collections that have a maximum size in the code, by the type and the attribute that hold them.

They fill slowly: each remembers bindings, decisions or events of a maximum number of pods. All other collections must
not grow.
"""

from __future__ import annotations

from collections.abc import Mapping

BOUNDED: Mapping[str, str] = {
    "Beliefs._seen": "doubles at most before deleted pods are forgotten, from 1,024 on",
    "Beliefs._new": "as Beliefs._seen",
    "Beliefs._trusted": "65,536 pods",
    "BoundedCache._kept": "so many bytes",
    "BoundedCache._sizes": "so many bytes",
    "CacheByUse._dropped": "so many sizes",
    "CacheByUse._kept": "so many bytes",
    "CacheByUse._sizes": "so many bytes",
    "Changes._log": "32,768 changes",
    "Decisions._noted": "so many bytes",
    "DeviceTable._before": "65,536 pods",
    "DeviceTable._reserved": "65,536 pods",
    "EventRecorder._warned": "10,000 objects",
    "EventRecorder._written": "10,000 events",
    "Failures._said": "one for each hook of a plugin that was slow, or has failed",
    "Failures.slow_counts": "one for each hook of a plugin",
    "Locks._gone": "so many pods",
    "NodeReports._had": "20,000 nodes",
    "NodeWear._nodes": "16,384 nodes",
    "KeptCuts._cuts": "so many bytes",
    "KeptCuts._outlines": "so many bytes",
    "PodCounts._empty": "1,024 groups",
    "PodCounts._groups": "1,024 groups",
    "PodCounts._groups_by_pair": "1,024 groups",
    "PodHistory._seen": "so many pods",
    "Series.counts": "one histogram for each set of labels",
    "Waking._backoff": "twice as many as wait, from 1,024 on",
    "Waking._timers": "twice as many as wait, from 1,024 on",
    "Wanting._matching": "1,024 events, each for the plugins that rejected units",
    "Wants._read": "twice as many as there are, and some",
    "Wants._same": "twice as many as there are, and some",
    "WeakKeyDictionary.data": "what is there: it holds nothing",
    "WeakSet.data": "what is there: it holds nothing",
    "WeakValueDictionary.data": "what is there: it holds nothing",
    "_Answer.fits": "an entry for each node, for each kind of hardware",
    "_Answer.index": "the rows of the last question: nodes that have changed",
    "_LabelKey.values": "twice as many as there are nodes with the label, and some",
    "_LabelKey.vocabulary": "twice as many as there are nodes with the label, and some",
    "_ProfileTurns.due": "twice as many as wait, from 1,024 on",
}
