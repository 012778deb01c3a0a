"""The outbox in Django's admin: view rows, and replay or purge dead ones. Rows cannot be edited.

Tasks and dead letters of the ledger are in ledger_admin/.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from relier.django.ledger_admin.admin import DeadLetterAdmin, LedgerTaskAdmin
from relier.django.models import NowMs, OutboxRow
from relier.django.shown import error_of, payload_of

__all__ = ["DeadLetterAdmin", "LedgerTaskAdmin", "OutboxRowAdmin"]  # Django imports this module to find them

LOOKED_AT = 1_000  # the newest rows, whose names and queues the filters offer: a million rows would take seconds
CHUNK = 500
UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


class ColumnValueFilter(admin.SimpleListFilter):
    """Filters by a value that a column has among the newest rows."""

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:  # noqa: ARG002
        newest = OutboxRow.objects.order_by("-id").values_list(self.parameter_name, flat=True)[:LOOKED_AT]
        return [(value, value) for value in sorted(set(newest))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[OutboxRow]) -> QuerySet[OutboxRow]:  # noqa: ARG002
        return queryset.filter(**{self.parameter_name: self.value()}) if self.value() else queryset


class NameFilter(ColumnValueFilter):
    title, parameter_name = "name", "name"


class QueueFilter(ColumnValueFilter):
    title, parameter_name = "queue", "queue"


class DeadFilter(admin.SimpleListFilter):
    title, parameter_name = "dead", "dead"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:  # noqa: ARG002
        return [("1", "Dead"), ("0", "To be sent")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[OutboxRow]) -> QuerySet[OutboxRow]:  # noqa: ARG002
        return queryset.filter(dead=int(self.value())) if self.value() in ("0", "1") else queryset


@admin.register(OutboxRow)
class OutboxRowAdmin(admin.ModelAdmin):
    list_display = ("name", "queue", "task_id", "age", "retries", "is_dead", "due")
    list_filter = (DeadFilter, QueueFilter, NameFilter)
    search_fields = ("task_id__exact",)
    ordering = ("-id",)
    show_full_result_count = False
    actions = ("replay", "purge")
    fields = (
        *("task_id", "name", "queue", "kind", "order_key", "age", "due", "claims", "retries", "leased_by"),
        *("is_dead", "died", "payload", "error_text"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxRow]:
        """Annotate each row with its times, by the database's clock."""
        now = NowMs()
        return (
            super()
            .get_queryset(request)
            .annotate(age_ms=now - F("created_at"), due_ms=F("due_at") - now, died_ms=now - F("died_at"))
        )

    # --- columns -----------------------------------------------------------------------------------------------------

    @admin.display(ordering="-created_at")
    def age(self, row: Any) -> str:
        return span(row.age_ms)

    @admin.display(ordering="due_at")
    def due(self, row: Any) -> str:
        if row.dead:
            return "never"
        return f"in {span(row.due_ms)}" if row.due_ms > 0 else "now"

    @admin.display(description="dead", boolean=True, ordering="dead")
    def is_dead(self, row: OutboxRow) -> bool:
        return bool(row.dead)

    @admin.display(description="died")
    def died(self, row: Any) -> str:
        return f"{span(row.died_ms)} ago" if row.dead else "-"

    @admin.display(description="payload")
    def payload(self, row: OutboxRow) -> str:
        return format_html("<pre>{}</pre>", payload_of(row))

    @admin.display(description="error")
    def error_text(self, row: OutboxRow) -> str:
        return format_html("<pre>{}</pre>", error_of(row))

    # --- permissions and actions -------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return any(request.user.has_perm(f"relier.{verb}_outboxrow") for verb in ("view", "change", "delete"))

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relier.change_outboxrow"))

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relier.delete_outboxrow"))

    @admin.action(description="Replay: send the selected dead rows again", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: QuerySet[OutboxRow]) -> None:
        done = sum(
            rows.update(dead=0, retries=0, claims=0, leased_by="", due_at=NowMs(), error="", died_at=0)
            for rows in self._dead(queryset)
        )
        self._tell(request, done, "will be sent again")

    @admin.action(description="Purge: delete the selected dead rows", permissions=["purge"])
    def purge(self, request: HttpRequest, queryset: QuerySet[OutboxRow]) -> None:
        done = 0
        for rows in self._dead(queryset):
            with transaction.atomic(using=queryset.db):
                # Locked: if a project listens to deletions, Django reads the rows first and deletes those it read.
                locked = rows.select_for_update()
                self.log_deletions(request, locked)
                done += rows.delete()[0]
        self._tell(request, done, "were deleted")

    def _dead(self, queryset: QuerySet[OutboxRow]) -> list[QuerySet[OutboxRow]]:
        """Return the dead rows of a selection, as querysets of a bounded number of ids.

        Each queryset filters by `dead` again, because somebody else may replay the rows meanwhile.
        """
        ids = list(queryset.filter(dead=1).values_list("id", flat=True))
        rows = OutboxRow.objects.using(queryset.db)
        return [rows.filter(id__in=ids[i : i + CHUNK], dead=1) for i in range(0, len(ids), CHUNK)]

    def _tell(self, request: HttpRequest, done: int, what: str) -> None:
        if done:
            self.message_user(request, f"{done} of the rows {what}.", messages.SUCCESS)
        else:
            self.message_user(request, "None of the selected rows is dead; nothing was changed.", messages.WARNING)


def span(ms: int) -> str:
    """Format a duration with its two largest units."""
    ms = max(0, ms)
    for (unit, size), (smaller, part) in pairwise(UNITS):
        if ms >= size:
            return f"{ms // size} {unit} {ms % size // part} {smaller}"
    return f"{ms / 1000:.1f} s"
