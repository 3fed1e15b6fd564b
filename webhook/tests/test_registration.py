"""The manifests that register the webhook; that the API server takes them is shown end to end."""

from __future__ import annotations

import base64

from gangline_webhook.registration import (
    asks_for_ranks,
    at_service,
    at_url,
    changes_allocation,
    concerns_gpus,
    mutating,
    validating,
)

CLIENT = at_url("https://127.0.0.1:8443/mutate", b"PEM")


def test_a_client_is_a_url_or_a_service_with_the_authority_as_base64() -> None:
    bundle = base64.b64encode(b"PEM").decode()

    assert at_url("https://127.0.0.1:8443/mutate", b"PEM") == {
        "url": "https://127.0.0.1:8443/mutate",
        "caBundle": bundle,
    }
    assert at_service("gpu", "webhook", "/mutate", b"PEM") == {
        "service": {"namespace": "gpu", "name": "webhook", "path": "/mutate", "port": 443},
        "caBundle": bundle,
    }


def test_every_webhook_has_a_scope_a_time_limit_and_stops_nobody_when_it_is_away() -> None:
    excluding = ["kube-system", "gpu"]
    manifests = [build("gpu", CLIENT, exclude_namespaces=excluding) for build in (mutating, validating)]

    for webhook in [*manifests[0]["webhooks"], *manifests[1]["webhooks"]]:
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert excluded == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "gpu"],
        }
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"], webhook["sideEffects"]) == ("Ignore", 5, "None")
        assert webhook["admissionReviewVersions"] == ["v1", "v1beta1"]
        assert {rule["scope"] for rule in webhook["rules"]} == {"Namespaced"}


def test_the_failure_policy_can_be_fail() -> None:
    assert mutating("gpu", CLIENT, failure_policy="Fail")["webhooks"][0]["failurePolicy"] == "Fail"


def test_pods_come_when_they_are_created_and_when_their_allocation_changes() -> None:
    (pods,) = mutating("gpu", CLIENT)["webhooks"]
    claims, allocations, jobs = validating("gpu", CLIENT)["webhooks"]

    assert [rule["operations"] for rule in pods["rules"]] == [["CREATE"]]
    assert [(rule["resources"], rule["operations"]) for rule in claims["rules"]] == [
        (["gpuclaims"], ["CREATE", "UPDATE"])
    ]
    assert [(rule["resources"], rule["operations"]) for rule in allocations["rules"]] == [(["pods"], ["UPDATE"])]
    assert [(rule["resources"], rule["operations"]) for rule in jobs["rules"]] == [(["jobs"], ["CREATE"])]
    assert (jobs["matchConditions"][0]["expression"], jobs["failurePolicy"]) == (asks_for_ranks(), "Ignore")
    assert allocations["matchConditions"][0]["expression"] == changes_allocation()


def test_names_of_schedulers_are_quoted_in_the_condition() -> None:
    assert r"object.spec.schedulerName in ['gpu-scheduler', 'it\'s']" in concerns_gpus(["gpu-scheduler", "it's"])
