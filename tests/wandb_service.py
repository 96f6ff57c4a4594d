"""A stand-in for the W&B service on this machine: what the client asks of it is answered, and kept to be looked at.

It proves what is sent, not what W&B's own server makes of it.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

ENTITY = {"id": "e1", "name": "ent", "defaultAccess": "PRIVATE"}
KEY = "k" * 40
ENVIRONMENT = {
    "WANDB_API_KEY": KEY,
    "WANDB_MODE": "online",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_INIT_TIMEOUT": "10",
    "WANDB_X_GRAPHQL_RETRY_MAX": "1",
    "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1",
}
"""What a client needs beside the address, so that it never waits for a network."""


@dataclass
class RemoteRun:
    """A run as the service has it."""

    name: str
    project: str
    shown: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    sweep: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    state: str = "running"
    starts: int = 0

    @property
    def values(self) -> dict[str, Any]:
        """The config as plain data, without W&B's own part."""
        return {key: node["value"] for key, node in self.config.items() if key != "_wandb"}

    @property
    def axes(self) -> dict[str, str | None]:
        """The metrics that were declared, and the axis of each."""
        told = self.config["_wandb"]["value"]["m"]
        names = [metric.get("1") or metric.get("2") for metric in told]
        return {
            name: names[metric["5"] - 1] if "5" in metric else None for name, metric in zip(names, told, strict=True)
        }

    def node(self) -> dict[str, Any]:
        """The answer to a question about it."""
        return {
            "id": base64.b64encode(f"Run:v1:{self.name}".encode()).decode(),
            "name": self.name,
            "displayName": self.shown or self.name,
            "description": "",
            "notes": "",
            "config": json.dumps(self.config),
            "wandbConfig": json.dumps({"t": 1}),
            "summaryMetrics": json.dumps(self.summary),
            "sweepName": self.sweep,
            "group": self.group,
            "jobType": None,
            "tags": self.tags,
            "state": self.state,
            "stopped": False,
            "commit": None,
            "historyLineCount": len(self.history),
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in self.history[-1:]]),
            "eventsTail": "[]",
            "createdAt": "2026-01-01T00:00:00Z",
            "heartbeatAt": "2026-01-01T00:00:00Z",
            "project": {"id": "p1", "internalId": "1", "name": self.project, "entity": ENTITY},
        }


class Service:
    """The state of the stand-in: runs by id, files by path, artifacts by name, and what it could not answer."""

    def __init__(self) -> None:
        self.address = ""
        self.runs: dict[str, RemoteRun] = {}
        self.files: dict[str, bytes] = {}
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.jobs: list[dict[str, Any]] = []
        self.sweep: dict[str, Any] = {}
        self.asked: list[str] = []
        self.unknown: list[tuple[str, str, Any]] = []
        self.broken = False
        self.lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What a client must have in its environment to speak to it."""
        return ENVIRONMENT | {"WANDB_BASE_URL": self.address}

    def run(self, name: str, project: str = "") -> RemoteRun:
        """The run of that id, made if it is new."""
        return self.runs.setdefault(name, RemoteRun(name, project))

    def only_run(self) -> RemoteRun:
        """The one run that there is."""
        (run,) = self.runs.values()
        return run

    def table(self, run: RemoteRun, key: str) -> dict[str, Any]:
        """The newest table that a run has logged under a key, as it was uploaded."""
        path = run.summary[key]["path"]
        return json.loads(self.files[path])

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """What GraphQL gives; an operation that is not known is kept in `unknown`."""
        found = re.search(r"(?:query|mutation|subscription)\s+(\w+)", query)
        operation = found[1] if found else "?"
        self.asked.append(operation)
        method = getattr(self, f"on_{operation}", None)
        if method is None:
            self.unknown.append((operation, query, variables))
            return {}
        return method(variables)

    def on_Viewer(self, _: Any) -> dict[str, Any]:
        viewer = {"id": "u1", "entity": "ent", "username": "me", "name": "me", "email": "a@b.c", "admin": False}
        teams = {"edges": [{"node": {"id": "e1", "name": "ent"}}]}
        return {"viewer": viewer | {"flags": "{}", "apiKeys": {"edges": []}, "teams": teams, "deletedAt": None}}

    def on_GetDefaultEntity(self, _: Any) -> dict[str, Any]:
        return {"viewer": {"id": "u1", "entity": "ent"}}

    def on_ServerFeaturesQuery(self, _: Any) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def on_OrganizationCoreWeaveOrganizationID(self, _: Any) -> dict[str, Any]:
        return {"entity": None}

    def on_RunStoppedStatus(self, _: Any) -> dict[str, Any]:
        return {"project": {"run": {"stopped": False}}}

    def on_RunResumeStatus(self, variables: Any) -> dict[str, Any]:
        run = self.runs.get(variables["name"])
        model = {"id": "p1", "name": variables["project"], "entity": ENTITY}
        return {"model": model | {"bucket": run and run.node()}}

    def on_UpsertBucket(self, variables: Any) -> dict[str, Any]:
        run = self.run(variables["name"], variables["project"])
        run.shown = variables.get("displayName") or run.shown
        run.group = variables.get("groupName") or run.group
        run.tags = variables.get("tags") or run.tags
        run.sweep = variables.get("sweep") or run.sweep
        if variables.get("config"):
            run.config = json.loads(variables["config"])
        return {"upsertBucket": {"bucket": run.node(), "inserted": True}}

    def on_CreateRunFiles(self, variables: Any) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{self.address}/upload/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}

    def on_ArtifactType(self, _: Any) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    def on_CreateArtifact(self, variables: Any) -> dict[str, Any]:
        told = variables["input"]
        name = told["artifactCollectionName"]
        self.artifacts[name] = {"type": told["artifactTypeName"], "state": "PENDING", "files": {}}
        made = {"id": name, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}
        return {"createArtifact": {"artifact": made}}

    def on_CreateArtifactManifest(self, variables: Any) -> dict[str, Any]:
        name = variables["artifactID"]
        address = {"uploadUrl": f"{self.address}/upload/manifest/{name}", "uploadHeaders": []}
        file = {"id": "f", "name": "wandb_manifest.json", "displayName": "wandb_manifest.json"} | address
        return {"createArtifactManifest": {"artifactManifest": {"id": name, "file": file}}}

    def on_UpdateArtifactManifest(self, variables: Any) -> dict[str, Any]:
        name = variables["artifactManifestID"]
        address = {"uploadUrl": f"{self.address}/upload/manifest/{name}", "uploadHeaders": []}
        file = {"id": "f", "name": "wandb_manifest.json", "displayName": "wandb_manifest.json"} | address
        return {"updateArtifactManifest": {"artifactManifest": {"id": name, "file": file}}}

    def on_CreateArtifactFiles(self, variables: Any) -> dict[str, Any]:
        edges = []
        for asked in variables["input"]["artifactFiles"]:
            place = f"artifact/{asked['artifactID']}/{asked['name']}"
            node = {"id": "f", "name": asked["name"], "displayName": asked["name"], "uploadHeaders": []}
            node |= {"uploadUrl": f"{self.address}/upload/{place}", "storagePath": place, "uploadMultipartUrls": None}
            edges.append({"node": node | {"artifact": {"id": asked["artifactID"]}}})
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def on_CommitArtifact(self, variables: Any) -> dict[str, Any]:
        self.artifacts[variables["artifactID"]]["state"] = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": variables["artifactID"], "digest": "x"}}}

    def on_SweepWithRuns(self, variables: Any) -> dict[str, Any]:
        told = {"id": "s", "name": variables["sweep"], "config": yaml.safe_dump(self.sweep), "runs": {"edges": []}}
        return {"project": {"sweep": told}}

    def on_CreateAgent(self, _: Any) -> dict[str, Any]:
        return {"createAgent": {"agent": {"id": "agent"}}}

    def on_Heartbeat(self, variables: Any) -> dict[str, Any]:
        """The next job of the sweep when the agent has none, and its end when there is none left."""
        busy = json.loads(variables["runState"])
        commands = [] if busy else [self.jobs.pop(0) if self.jobs else {"type": "exit"}]
        return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(commands)}}

    def stream(self, project: str, name: str, told: dict[str, Any]) -> None:
        """Takes rows, summary and state of a run, as the client streams them."""
        run = self.run(name, project)
        for file, part in (told.get("files") or {}).items():
            if file == "wandb-history.jsonl":
                run.history[part["offset"] :] = [json.loads(line) for line in part["content"]]
            if file == "wandb-summary.json":
                run.summary = json.loads(part["content"][-1])
        if told.get("complete"):
            run.state = "failed" if told.get("exitcode") else "finished"


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Says nothing of each request."""

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

        def _say(self, content: Any, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._say({"ready": True})

        def do_PUT(self) -> None:
            service.files[self.path.removeprefix("/upload/")] = self._body()
            self._say({})

        def do_POST(self) -> None:
            body = self._body()
            with service.lock:
                if service.broken:
                    return self._say({"errors": [{"message": "permission denied"}]}, 403)
                if self.path.startswith("/graphql"):
                    asked = json.loads(body)
                    return self._say({"data": service.answer(asked["query"], asked.get("variables") or {})})
                found = re.match(r"/files/[^/]+/([^/]+)/([^/]+)/file_stream", self.path)
                if found:
                    service.stream(found[1], found[2], json.loads(body))
            return self._say({"limits": {}, "exitcode": None})

    return Handler


@contextmanager
def serving(service: Service | None = None) -> Iterator[Service]:
    """A service that answers while the block lasts."""
    service = service or Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    server.handle_error = lambda *_: None  # the client drops connections that it keeps no more
    server.daemon_threads = True
    service.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
