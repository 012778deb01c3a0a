"""Folders mirror src/relier. Three suites run across packages: conformance, outage and celery_upstream.

Code that tests share is in tests/support. A folder of tests holds only `test_*.py` and `conftest.py`.
"""
