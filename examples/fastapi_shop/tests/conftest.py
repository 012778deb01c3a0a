from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from shop import bank
from shop.database import Base, engine
from shop.web import app


@pytest.fixture(autouse=True)
def fresh_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty database and an empty bank for each test. Nothing runs in the background."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    monkeypatch.setattr(bank, "BOOKS", tmp_path / "bank.json")


@pytest.fixture
def relier_outbox_bind() -> Any:
    return engine


@pytest.fixture
def ann() -> TestClient:
    return TestClient(app, cookies={"customer": "ann"})


@pytest.fixture
def bob() -> TestClient:
    return TestClient(app, cookies={"customer": "bob"})
