"""What the API server tells a server about users: the CA of their certificates, and how often it may be asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gangline.errors import GanglineError, NotFound
from gangline.kube.interface import Client
from gangline.kube.resources import CONFIG_MAPS

log = logging.getLogger(__name__)

AT_A_TIME = 4
"""Largest number of reviews under way."""
CLIENT_CA = ("kube-system", "extension-apiserver-authentication", "client-ca-file")
"""Namespace, name and key of the ConfigMap in which every API server publishes the CA of client certificates."""
CLIENT_CA_PERIOD = 60.0
"""Seconds between two reads of this ConfigMap."""


async def follow_client_ca(client: Client, trust: Callable[[str], None]) -> None:
    """Call `trust` every CLIENT_CA_PERIOD seconds with the CA of client certificates, or "", until cancelled."""
    namespace, name, key = CLIENT_CA
    complaint = ""
    while True:
        try:
            found = await client.get(CONFIG_MAPS, name, namespace=namespace)
            trust((found.data or {}).get(key, ""))
            complaint = ""
        except NotFound:
            trust("")
        except GanglineError as error:
            if str(error) != complaint:
                complaint = str(error)
                log.warning("the CA of client certificates cannot be read; what was read before holds: %s", error)
        await asyncio.sleep(CLIENT_CA_PERIOD)
