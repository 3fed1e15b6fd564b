"""Stories of selectors: each expression tells the second of two devices from the first, or fails."""

from __future__ import annotations

from gangline_e2e.claims.building import Story, Version, claim, class_, device, exactly, node, offer, pod

FIRST = device(
    "gpu-0",
    {
        "model": "A100-SXM4",
        "cores": 108,
        "nvlink": False,
        "driverVersion": Version("1.2.3"),
        "address": "10.0.0.7",
        "network": "10.0.0.0/24",
        "endpoint": "http://one.example.com:80/a?b=c",
        "uuid": "a",
        "tags": "x,y",
    },
    {"memory": "40Gi", "slices": "7"},
)
SECOND = device(
    "gpu-1",
    {
        "model": "H100-SXM5",
        "cores": 132,
        "nvlink": True,
        "driverVersion": Version("2.10.0-rc.1"),
        "address": "fd00::1",
        "network": "192.168.0.0/16",
        "endpoint": "https://two.example.com:8443/d?e=f",
        "uuid": "b",
        "tags": "x,z",
        "only": True,
        "example.org/other": "here",
    },
    {"memory": "80Gi", "slices": "8"},
)
OWN = 'device.attributes["DRIVER"]'
CAPACITY = 'device.capacity["DRIVER"]'
CHOOSING = {
    "string-equal": f'{OWN}.model == "H100-SXM5"',
    "integer": f"{OWN}.cores > 128",
    "boolean": f"{OWN}.nvlink",
    "arithmetic": f"{OWN}.cores * 2 - 4 == 260 && {OWN}.cores % 11 == 0",
    "ternary": f'({OWN}.nvlink ? "yes" : "no") == "yes"',
    "in-list": f'{OWN}.model in ["H100-SXM5", "H200-SXM5"]',
    "has": f"has({OWN}.only)",
    "in-map": f'"only" in {OWN}',
    "domain-there": '"example.org" in device.attributes',
    "optional": f'{OWN}[?"only"].orValue(false)',
    "optional-domain": 'device.attributes[?"example.org"].?other.orValue("") == "here"',
    "starts-with": f'{OWN}.model.startsWith("H100")',
    "contains": f'{OWN}.model.contains("SXM5") && {OWN}.model.endsWith("5")',
    "regex": f'{OWN}.model.matches("^H[0-9]+-SXM5$")',
    "regex-find": f'{OWN}.model.find("[0-9]+") == "100" && {OWN}.model.findAll("[0-9]+").size() == 2 && {OWN}.nvlink',
    "lower": f'{OWN}.model.lowerAscii() == "h100-sxm5"',
    "split": f'{OWN}.model.split("-")[0] == "H100"',
    "replace": f'{OWN}.model.replace("-", "") == "H100SXM5"',
    "substring": f'{OWN}.model.substring(0, 4) == "H100" && {OWN}.model.indexOf("-") == 4',
    "format-text": f'"%s-%d".format(["x", 132]) == "x-132" && {OWN}.nvlink',
    "list-all": f'{OWN}.tags.split(",").all(tag, tag in ["x", "z"])',
    "list-exists": f'{OWN}.tags.split(",").exists(tag, tag == "z")',
    "list-map": f"[1, 2].map(n, n * 2) == [2, 4] && {OWN}.nvlink",
    "list-filter": f'{OWN}.tags.split(",").filter(tag, tag != "x") == ["z"]',
    "list-sum": f"[131, 1].sum() == 132 && [1, 132].max() == 132 && [1, 2].isSorted() && {OWN}.nvlink",
    "sets": f'sets.contains({OWN}.tags.split(","), ["z"]) && !sets.intersects({OWN}.tags.split(","), ["y"])',
    "semver": f'{OWN}.driverVersion.isGreaterThan(semver("1.9.0"))',
    "semver-parts": f"{OWN}.driverVersion.major() == 2 && {OWN}.driverVersion.minor() == 10",
    "semver-compare": f'{OWN}.driverVersion.compareTo(semver("2.10.0")) == -1 && {OWN}.nvlink',
    "is-semver": f'isSemver("1.2.3") && !isSemver("1.2") && {OWN}.nvlink',
    "quantity": f'{CAPACITY}.memory.compareTo(quantity("64Gi")) > 0',
    "quantity-equal": f'{CAPACITY}.memory == quantity("80Gi")',
    "quantity-sum": f'{CAPACITY}.memory.sub(quantity("40Gi")) == quantity("40Gi") && {CAPACITY}.slices.isInteger()',
    "quantity-test": f'isQuantity("1Gi") && {CAPACITY}.memory.isGreaterThan(quantity("41Gi"))',
    "url": f'url({OWN}.endpoint).getScheme() == "https" && url({OWN}.endpoint).getPort() == "8443"',
    "url-parts": f'isURL({OWN}.endpoint) && url({OWN}.endpoint).getHostname().startsWith("two")',
    "url-query": f'url({OWN}.endpoint).getQuery() == {{"e": ["f"]}}',
    "ip": f"ip({OWN}.address).family() == 6",
    "ip-test": f'isIP({OWN}.address) && ip({OWN}.address) == ip("fd00:0::1")',
    "cidr": f'cidr({OWN}.network).containsIP(ip("192.168.3.4"))',
    "cidr-prefix": f"cidr({OWN}.network).prefixLength() == 16 && isCIDR({OWN}.network)",
    "named-format": f"format.dns1123Label().validate({OWN}.uuid).hasValue() == false && {OWN}.nvlink",
    "conversion": f"int(string({OWN}.cores)) == 132 && double({OWN}.cores) > 131.5",
    "duration": f'duration("1h") > duration("59m") && {OWN}.nvlink',
    "timestamp": f'timestamp("2026-01-02T03:04:05Z").getFullYear() == 2026 && {OWN}.nvlink',
    "driver": f'device.driver == "DRIVER" && {OWN}.nvlink',
    "allows-several": f"!device.allowMultipleAllocations && {OWN}.nvlink",
    "error-is-hidden": f"{OWN}.nvlink && {OWN}.only",
    "cost": f"[1, 2, 3].all(a, [1, 2, 3].exists(b, a == b)) && {OWN}.nvlink",
}
"""Expressions that are true for the second device alone."""
FAILING = {
    "no-such-attribute": f"{OWN}.only",
    "no-such-domain": 'device.attributes["example.org"].other == "here"',
    "bad-index": f'{OWN}.tags.split(",")[5] == "z"',
    "bad-number": f"int({OWN}.model) == 1",
    "division": f"{OWN}.cores / ({OWN}.cores - 108) > 0",
}
"""Expressions that fail for the first device, which fails the pod."""


def _story(name: str, expression: str) -> Story:
    there = [node(), offer([FIRST, SECOND]), class_(), claim("c", exactly("gpu", expression))]
    if name in FAILING:
        return Story(
            f"cel-{name}",
            there,
            [pod("p", "c", refused="claim NAMESPACE/@c: selector #0: CEL runtime error")],
            {"c": []},
        )
    return Story(f"cel-{name}", there, [pod("p", "c", at="a")], {"c": ["gpu=gpu-1"]})


STORIES = (
    *(_story(name, expression) for name, expression in {**CHOOSING, **FAILING}.items()),
    Story(
        "cel-of-the-class",
        [node(), offer([FIRST, SECOND]), class_("gpu", f"{OWN}.nvlink"), claim("c", exactly())],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1"]},
    ),
    Story(
        "cel-all-selectors-count",
        [
            node(),
            offer([FIRST, SECOND]),
            class_("gpu", 'device.driver == "DRIVER"', f"{OWN}.cores > 1"),
            claim("c", exactly("gpu", f"{OWN}.cores > 2", f"{OWN}.nvlink")),
        ],
        [pod("p", "c", at="a")],
        {"c": ["gpu=gpu-1"]},
    ),
    Story(
        "cel-of-the-class-fails",
        [node(), offer([FIRST, SECOND]), class_("gpu", f"{OWN}.only"), claim("c", exactly())],
        [pod("p", "c", refused="class @gpu: selector #0: CEL runtime error")],
        {"c": []},
    ),
)
