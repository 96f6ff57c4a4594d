"""The stand-in for the W&B service, able to be read: what `wandb.Api` asks of runs, and what a report sends."""

from __future__ import annotations

import json
from typing import Any

from tests.wandb_service import ENTITY, RemoteRun, Service


class Readable(Service):
    """Answers questions about the runs it was sent; reports are kept in `views`."""

    def __init__(self) -> None:
        super().__init__()
        self.views: list[dict[str, Any]] = []

    def of(self, project: str) -> list[RemoteRun]:
        """The runs of a project, as they came."""
        return [run for run in self.runs.values() if run.project == project]

    def found(self, variables: dict[str, Any]) -> RemoteRun:
        """The run that a question is about."""
        return self.runs[next(variables[key] for key in ("name", "run", "runName") if variables.get(key))]

    def on_Runs(self, variables: dict[str, Any]) -> dict[str, Any]:
        """The runs of a project, all on one page."""
        runs = self.of(variables["project"])
        edges = [{"node": self.seen(run), "cursor": run.name} for run in runs]
        page = {"endCursor": "", "hasNextPage": False}
        project = {"id": "p1", "internalId": "1", "readOnly": False, "runCount": len(runs)}
        return {
            "project": project | {"runs": {"totalCount": len(runs), "edges": edges, "pageInfo": page}} if runs else None
        }

    def on_Run(self, variables: dict[str, Any]) -> dict[str, Any]:
        """One run."""
        return {"project": {"run": self.seen(self.found(variables))}}

    on_GetRun = on_LightRun = on_FullRun = on_Run

    def on_RunParquetHistory(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Its rows: none of them was put away in a file."""
        history = {"parquetUrls": [], "liveData": self.found(variables).history}
        return {"project": {"run": {"parquetHistory": history}}}

    def on_HistoryPage(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Its rows, those between two steps."""
        low, high = variables.get("minStep") or 0, variables.get("maxStep") or 10**9
        rows = [row for row in self.found(variables).history if low <= row["_step"] < high]
        return {"project": {"run": {"history": [json.dumps(row) for row in rows]}}}

    def on_RunHistoryKeys(self, variables: dict[str, Any]) -> dict[str, Any]:
        """How far its rows go."""
        return {"project": {"run": {"historyKeys": _keys(self.found(variables))}}}

    def on_GetProjects(self, _: Any) -> dict[str, Any]:
        """The projects of the entity."""
        names = dict.fromkeys(run.project for run in self.runs.values())
        more = {"__typename": "Project", "entityName": "ent", "createdAt": "", "isBenchmark": False, "user": None}
        edges = [{"node": {"id": "p1", "name": name} | more} for name in names]
        page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
        return {"models": {"edges": edges, "pageInfo": page}}

    def on_ProjectInternalId(self, variables: dict[str, Any]) -> dict[str, Any]:
        """What a set of runs in a report calls its project."""
        return {"project": {"id": "p1", "internalId": "UHJvamVjdEludGVybmFsSWQ6MQ=="}}

    def on_upsertView(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Keeps a report."""
        self.views.append(variables)
        view = {
            "id": "v1",
            "type": variables["type"],
            "name": variables["name"],
            "displayName": variables["displayName"],
        }
        view |= {"description": "", "project": {"id": "p", "name": variables["projectName"], "entityName": "ent"}}
        view |= {"createdAt": "2026-01-01T00:00:00", "updatedAt": "2026-01-01T00:00:00", "user": None}
        return {"upsertView": {"view": view | {"spec": variables["spec"], "previewUrl": None}, "inserted": True}}

    def seen(self, run: RemoteRun) -> dict[str, Any]:
        """A run as the questions want it."""
        more = {"createdAt": "2026-01-01T00:00:00Z", "heartbeatAt": "2026-01-01T00:00:00Z", "projectId": 1}
        more |= {
            "user": {"name": "me", "username": "me", "id": "u1", "email": "a@b.c"},
            "readOnly": False,
            "internalId": "1",
        }
        more |= {
            "project": {"id": "p1", "internalId": "1", "name": run.project, "entity": ENTITY},
            "systemMetrics": "{}",
        }
        return run.node() | more | {"historyKeys": _keys(run), "summaryMetrics": json.dumps(run.summary)}


def _keys(run: RemoteRun) -> dict[str, Any]:
    return {"keys": {}, "lastStep": max((row["_step"] for row in run.history), default=-1), "sets": []}
