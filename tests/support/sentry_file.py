"""Sentry's SDK, with a file in place of its server. Importing it imports eventlet, so tests do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.integrations import Integration
from sentry_sdk.transport import Transport


def report_to(file: Path, integrations: Sequence[Integration]) -> None:
    """Write every event of this process and its children to the file, one per line."""

    class FileTransport(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            events = [item.payload.json for item in envelope.items if item.type == "event"]
            with file.open("a") as out:
                out.writelines(json.dumps(event) + "\n" for event in events)

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=FileTransport, integrations=list(integrations))
