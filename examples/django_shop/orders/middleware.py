from __future__ import annotations

import math
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from relier import AdmissionRejectedError, StoreUnavailableError


class StoreErrors:
    """Answer in a way that clients and proxies understand while the store is unreachable, or when a limit was
    reached."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, StoreUnavailableError):
            return JsonResponse({"detail": "Temporarily unavailable."}, status=503, headers={"Retry-After": "2"})
        if isinstance(error, AdmissionRejectedError):
            wait = str(max(1, math.ceil(error.retry_after)))
            return JsonResponse({"detail": "Too many requests."}, status=429, headers={"Retry-After": wait})
        return None
