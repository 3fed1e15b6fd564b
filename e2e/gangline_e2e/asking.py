"""Asks the API server what it would do now: it learns of rights, policies and webhooks a moment after they are made."""

from __future__ import annotations

from typing import Any

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def is_allowed(api: Api, user: str, **attributes: Any) -> bool:
    """Whether a user may do something; `attributes` are fields of a SubjectAccessReview."""
    review = await api.request("POST", _REVIEWS, {"spec": {"user": user, **attributes}})
    return bool(review["status"]["allowed"])


async def is_refused(api: Api, path: str, manifest: Manifest, why: str) -> bool:
    """Whether an object that is posted there would be refused for this reason."""
    try:
        await api.request("POST", path, manifest, dryRun="All")
    except Refused as error:
        return why in error.message
    return False
