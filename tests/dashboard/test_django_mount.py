"""The dashboard beside Django, in one ASGI application: users and roles are Django's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relier.settings import Settings
from tests.support import PYTHONPATH, ROOT

BEFORE = """
import django
from django.conf import settings
settings.configure(
    SECRET_KEY="x", ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"], MIDDLEWARE=[],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "users.db"}},
)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.http import HttpResponse
from django.urls import path
urlpatterns = [path("shop/", lambda request: HttpResponse("the shop"))]
"""
AFTER = """
from django.contrib.auth import SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY
from django.contrib.auth.models import User
from starlette.testclient import TestClient
web = TestClient(application, base_url="http://shop", follow_redirects=False)

def cookie(user):
    store = SessionStore()
    store.update({SESSION_KEY: str(user.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
                  HASH_SESSION_KEY: user.get_session_auth_hash()})
    store.save()
    return {"Cookie": f"sessionid={store.session_key}"}

root = cookie(User.objects.create_superuser("root"))
staff = cookie(User.objects.create_user("staff", is_staff=True))
anybody = cookie(User.objects.create_user("anybody"))
print(web.get("/shop/").text)
for who in (root, staff, anybody, {}):
    answer = web.get("/relier/limits", headers=who)
    print(answer.status_code, "Set a limit" in answer.text)
"""


@pytest.mark.slow
def test_the_example_of_the_documentation_works(settings: Settings, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "dashboard.md").read_text()
    example = page.split("Django, in `asgi.py`:\n\n```py\n")[1].split("```")[0]
    (tmp_path / "shop.py").write_text(BEFORE + example + AFTER)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RELIER_", "DJANGO_"))}
    env = kept | {
        "PYTHONPATH": PYTHONPATH,
        "RELIER_REDIS_URL": settings.redis_url,
        "RELIER_NAMESPACE": settings.namespace,
    }
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines() == ["the shop", "200 True", "200 False", "403 False", "403 False"], done.stderr
