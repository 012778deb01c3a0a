"""Times in the outbox are the database's own, in ms since 1970, and never go back."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import time
from contextlib import closing

import pymysql
import pytest
from sqlalchemy import create_engine, text

from relier.outbox.table.statements import NOW_MS
from tests.support.databases import Database

ZONE = "Europe/Berlin"


def test_the_databases_clock_advances(database: Database) -> None:
    engine = create_engine(database.url)
    before = time.time_ns() // 1_000_000
    with engine.connect() as connection:
        now = connection.execute(text(f"SELECT {NOW_MS[engine.dialect.name]}")).scalar_one()
    engine.dispose()
    assert isinstance(now, int)
    assert before - 60_000 < now < before + 60_000


def test_the_database_clock_does_not_go_back_when_summer_time_ends(mariadb: Database) -> None:
    tool = shutil.which("mariadb-tzinfo-to-sql") or shutil.which("mysql_tzinfo_to_sql")
    if tool is None:
        pytest.skip("no tool that tells the server of time zones")
    zone = subprocess.run([tool, f"/usr/share/zoneinfo/{ZONE}", ZONE], capture_output=True, text=True, check=True)
    first = int(datetime.datetime(2026, 10, 25, 0, 30, tzinfo=datetime.UTC).timestamp())
    with (
        closing(pymysql.connect(host="127.0.0.1", port=mariadb.server.port, user="root", database="mysql")) as server,
        server.cursor() as cursor,
    ):
        for statement in filter(str.strip, zone.stdout.split(";")):
            cursor.execute(statement)
        cursor.execute(f"SET time_zone = '{ZONE}'")
        for half_past_two in (first, first + 3600):  # it is that twice
            cursor.execute(f"SET timestamp = {half_past_two}.5")
            cursor.execute(f"SELECT NOW(), {NOW_MS['mysql']}")
            local, now = cursor.fetchone() or (None, None)
            assert str(local) == "2026-10-25 02:30:00"
            assert now == 1000 * half_past_two + 500
