"""Folders mirror src/relier. Three suites run across packages: conformance, outage and celery_upstream.

What tests share is in tests/support. A folder of tests holds `test_*.py` and `conftest.py` only.
"""
