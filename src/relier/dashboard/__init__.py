"""The dashboard: pages, a JSON API and a live feed of one namespace, as an ASGI application.

    from relier.dashboard import DashboardUser, app

    application.mount("/relier", app(auth=lambda request: DashboardUser("ann", "operator")))

Pages show state, which is read from the ledger by the reads that `rl` has. Events only tell a page when to read again.
Every page is one entry of a table (pages.py): a path, a template, and a function that reads plain data. The JSON API
serves the same data. Every button is one entry of another table (actions/): it needs the role `operator`, a CSRF token
and a request from the same site, and who pressed it is recorded in the namespace (action_log.py).
"""

from relier.dashboard.application import app
from relier.dashboard.security.access import DashboardUser

__all__ = ["DashboardUser", "app"]
