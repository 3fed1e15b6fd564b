"""A kubelet without containers: it runs the containers of pods as processes on this machine.

These parts of a pod's spec count: command, environment, volumes, the token of its ServiceAccount, probes, restarts.
Each pod has an address of its own in 127.0.0.0/8, so that all keep their ports. Images, users, limits and capabilities
do not count. Pods outside of the namespace that it looks after only become Running.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import yaml

from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.egress import container_port
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest, Manifests

POLL_S = 0.5
GRACE_S = 10.0
BACKOFF_S = 1.0
TOKEN_S = 3600
NETWORK = f"127.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"  # every test process has another network


class Kubelet:
    """Plays the kubelet of every node; the files and logs of pods stand in ``folder``.

    ``kubeconfig`` is the administrator's. Each pod gets a copy with a token of its own instead of the credentials.
    """

    def __init__(self, api: Api, kubeconfig: Path, folder: Path, namespace: str) -> None:
        self._api = api
        self._cluster = yaml.safe_load(kubeconfig.read_text())
        self._folder = folder
        self._namespace = namespace
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._addresses = 0

    async def run(self) -> None:
        """Look after pods until cancelled; then every process is stopped."""
        async with asyncio.TaskGroup() as group:
            async for event, pod in self._api.watch("/api/v1/pods"):
                if event == "RESTART" or not pod["spec"].get("nodeName"):
                    continue
                uid = pod["metadata"]["uid"]
                task = self._pods.get(uid)
                if event == "DELETED" or pod["metadata"].get("deletionTimestamp"):
                    if task is not None and not task.done():
                        if not task.cancelling():  # cancel it once only: it has to tidy up
                            task.cancel()
                    elif event != "DELETED":
                        await self._drop(pod)
                elif task is None:
                    self._pods[uid] = group.create_task(self._look_after(pod))

    def log(self, pod: str) -> str:
        """All that the containers of a pod have printed."""
        file = self._folder / f"{pod}.log"
        return file.read_text(errors="replace") if file.is_file() else ""

    def kubeconfig(self, pod: str) -> Path:
        """The credentials of a pod that runs."""
        return self._folder / pod / "kubeconfig"

    def logs(self) -> str:
        """All that all pods have printed."""
        return "".join(f"--- {file.stem}\n{file.read_text(errors='replace')}" for file in self._folder.glob("*.log"))

    async def _look_after(self, pod: Manifest) -> None:
        if pod["metadata"]["namespace"] != self._namespace:
            return await self._tell(pod, "Running", ready=True)
        self._addresses += 1
        address = f"{NETWORK}.{self._addresses}"
        running = RunningPod(self._api, self._cluster, self._folder, pod, address, self._tell)
        try:
            await running.run()
        except asyncio.CancelledError:
            with suppress(Refused, aiohttp.ClientError):
                await self._drop(pod)
            raise

    async def _drop(self, pod: Manifest) -> None:
        """The pod's processes have ended: the API server may forget the pod."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        await self._api.delete(path, at_once=True)

    async def _tell(
        self, pod: Manifest, phase: str, *, ready: bool, address: str = "127.0.0.1", restarts: int = 0
    ) -> None:
        """Write the status of a pod; fine if it is gone."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"]
        for kind in ("Initialized", "ContainersReady", "Ready"):
            conditions.append({"type": kind, "status": str(ready or kind == "Initialized"), "lastTransitionTime": now})
        state = {"terminated": {"exitCode": 0}} if phase == "Succeeded" else {"running": {"startedAt": now}}
        containers = [
            {"name": each["name"], "image": each["image"], "imageID": "", "ready": ready, "restartCount": restarts}
            | {"state": state}
            for each in pod["spec"]["containers"]
        ]
        status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1"}
        status |= {"startTime": now, "conditions": conditions, "containerStatuses": containers}
        with suppress(Refused):
            await self._api.merge(f"{path}/status", {"metadata": {"uid": metadata["uid"]}, "status": status})


class RunningPod:
    """The processes of one pod's only container."""

    def __init__(
        self,
        api: Api,
        cluster: Manifest,
        folder: Path,
        pod: Manifest,
        address: str,
        tell: Callable[..., Awaitable[None]],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._pod = pod
        self._name: str = pod["metadata"]["name"]
        self._namespace: str = pod["metadata"]["namespace"]
        containers: Manifests = pod["spec"]["containers"]
        (self._container,) = containers
        self._address = address
        self._tell = tell
        self._root = folder / self._name
        self._log = folder / f"{self._name}.log"
        self._root.mkdir(parents=True)

    async def run(self) -> None:
        """Run the pod to its end. If cancelled, stop the process first."""
        await self._write_kubeconfig()
        restarts = 0
        while True:
            await self._mount()
            process = processes.start(self._name, self._command(), self._log)
            try:
                code = await self._watch(process, restarts)
            finally:
                await asyncio.to_thread(processes.stop, [process], GRACE_S)
            if code == 0 and self._pod["spec"]["restartPolicy"] != "Always":
                return await self._tell(self._pod, "Succeeded", ready=False, address=self._address)
            restarts += 1
            await self._tell(self._pod, "Running", ready=False, address=self._address, restarts=restarts)
            await asyncio.sleep(BACKOFF_S)

    async def _watch(self, process: processes.Process, restarts: int) -> int:
        """Write the pod's readiness whenever it changes; returns the exit code once the process has ended."""
        told: bool | None = None
        while process.alive():
            ready = await self._is_ready()
            if ready != told:
                told = ready
                await self._tell(self._pod, "Running", ready=ready, address=self._address, restarts=restarts)
            await self._mount()
            await asyncio.sleep(POLL_S)
        assert process.popen is not None
        return process.popen.wait()

    async def _is_ready(self) -> bool:
        probe = self._container.get("readinessProbe")
        if probe is None:
            return True
        port = container_port(self._pod, probe["httpGet"]["port"])
        url = f"http://{self._address}:{port}{probe['httpGet']['path']}"
        try:
            async with aiohttp.request("GET", url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    # What the process sees

    def _command(self) -> list[str]:
        """The container's words, run by the interpreter at hand; only PYTHONPATH is taken over from this process."""
        given: list[str] = [*self._container["command"], *self._container.get("args", [])]
        program, *words = given
        assert program in ("gangline", "sh"), f"{self._name}: the image has no program {program}"
        env = {"PATH": "/usr/bin:/bin", "HOME": self._root / "tmp", "KUBECONFIG": self._root / "kubeconfig"}
        if path := os.environ.get("PYTHONPATH"):
            env["PYTHONPATH"] = path
        env |= {each["name"]: self._value(each) for each in self._container.get("env", [])}
        assignments = [f"{name}={value}" for name, value in env.items()]
        if program == "sh":
            return ["env", "-i", *assignments, program, *words]
        return ["env", "-i", *assignments, sys.executable, "-m", "gangline", *map(self._word, words)]

    def _word(self, word: str) -> str:
        """A word with the paths and addresses that it has here."""
        flag, equals, value = word.partition("=")
        if value.startswith("/") and (self._root / value.split("/")[1]).exists():
            value = f"{self._root}{value}"
        return flag + equals + value.replace("0.0.0.0:", f"{self._address}:")

    def _value(self, variable: Manifest) -> str:
        if "value" in variable:
            return str(variable["value"])
        path: str = variable["valueFrom"]["fieldRef"]["fieldPath"]
        if path.startswith("metadata.annotations["):
            key = path.split("'")[1]
            return str(self._pod["metadata"].get("annotations", {}).get(key, ""))
        fields = {"metadata.name": self._name, "metadata.namespace": self._namespace}
        fields["spec.nodeName"] = self._pod["spec"]["nodeName"]
        return fields[path]

    async def _write_kubeconfig(self) -> None:
        """Credentials with a token of the pod's ServiceAccount that is bound to the pod, as kubelets ask for."""
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self._name, "uid": self._pod["metadata"]["uid"]}
        request = {"spec": {"boundObjectRef": bound, "expirationSeconds": TOKEN_S}}
        account = self._pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        made = await self._api.request("POST", path, request)
        user = {"name": self._cluster["users"][0]["name"], "user": {"token": made["status"]["token"]}}
        file = self._root / "kubeconfig"
        file.write_text(yaml.safe_dump({**self._cluster, "users": [user]}))
        file.chmod(0o600)

    async def _mount(self) -> None:
        """Bring the volumes up to date."""
        volumes = {each["name"]: each for each in self._pod["spec"].get("volumes", [])}
        for mount in self._container.get("volumeMounts", []):
            volume, place = volumes.get(mount["name"]), self._root / mount["mountPath"].lstrip("/")
            if volume is None:  # the ServiceAccount's token, which an admission plugin adds
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if "hostPath" in volume:
                if not place.is_symlink():
                    place.symlink_to(volume["hostPath"]["path"])
                continue
            place.mkdir(exist_ok=True)
            for name, content in (await self._content(volume)).items():
                file = place / name
                if not file.is_file() or file.read_bytes() != content:
                    new = file.with_name(f".{name}.new")
                    new.write_bytes(content)
                    new.replace(file)

    async def _content(self, volume: Manifest) -> dict[str, bytes]:
        """The files of a volume by name; an optional Secret that does not exist has none."""
        at = f"/api/v1/namespaces/{self._namespace}"
        if "configMap" in volume:
            found = await self._api.get(f"{at}/configmaps/{volume['configMap']['name']}")
            return {name: text.encode() for name, text in found.get("data", {}).items()}
        if "secret" in volume:
            try:
                found = await self._api.get(f"{at}/secrets/{volume['secret']['secretName']}")
            except Refused as error:
                if error.status == 404 and volume["secret"].get("optional"):
                    return {}
                raise
            return {name: base64.b64decode(text) for name, text in (found.get("data") or {}).items()}
        return {}
