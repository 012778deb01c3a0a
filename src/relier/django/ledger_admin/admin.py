"""The pages of tasks and dead letters. Permissions are those of the models LedgerTask and DeadLetter."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

from relier.django.ledger_admin import reading
from relier.django.models import DeadLetter, LedgerTask
from relier.errors import RelierError, TaskNotFoundError
from relier.states import State

EMPTY = reading.TaskList([], {}, {})


class LedgerPages(admin.ModelAdmin):
    """A list and a page per task, read from the ledger. Nothing can be added or edited."""

    states: ClassVar[tuple[State, ...]] = reading.ORDER
    filters: ClassVar[tuple[str, ...]] = ("state", "queue", "name")

    def get_urls(self) -> list[Any]:
        name, view = self.opts.model_name, self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=f"relier_{name}_changelist"),
            path("<str:task_id>/", view(self.task_view), name=f"relier_{name}_change"),
        ]

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        verbs = self.opts.default_permissions
        return any(request.user.has_perm(f"relier.{verb}_{self.opts.model_name}") for verb in verbs)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:  # noqa: ARG002
        self._refuse_unless(self.has_view_permission(request))
        chosen = {name: request.GET.get(name, "") for name in self.filters}
        states = [state for state in self.states if chosen.get("state") in (None, "", state.value)]
        try:
            found = reading.recent_tasks(states, **{name: chosen[name] for name in self.filters if name != "state"})
        except RelierError as error:
            self.message_user(request, f"The ledger cannot be read: {error}", messages.ERROR)
            found = EMPTY
        return self._page(request, "ledger_list.html", found=found, chosen=chosen, actions=self._allowed(request))

    def task_view(self, request: HttpRequest, task_id: str) -> HttpResponse:
        self._refuse_unless(self.has_view_permission(request))
        try:
            task = reading.read_task(task_id)
        except TaskNotFoundError as error:
            raise Http404(str(error)) from error
        return self._page(request, "ledger_task.html", task=reading.describe(task))

    def _allowed(self, request: HttpRequest) -> dict[str, str]:  # noqa: ARG002
        """Return the actions that this user may take: name and label."""
        return {}

    def _page(self, request: HttpRequest, template: str, **context: Any) -> TemplateResponse:
        shared = self.admin_site.each_context(request) | {"opts": self.opts, "title": self.opts.verbose_name_plural}
        return TemplateResponse(request, f"admin/relier/{template}", shared | context)

    @staticmethod
    def _refuse_unless(allowed: bool) -> None:
        if not allowed:
            raise PermissionDenied


@admin.register(LedgerTask)
class LedgerTaskAdmin(LedgerPages):
    """All tasks, by state."""


@admin.register(DeadLetter)
class DeadLetterAdmin(LedgerPages):
    """Dead letters by reason. To replay them, a user needs the change permission; to discard them, the delete
    permission."""

    states: ClassVar[tuple[State, ...]] = (State.DEAD,)
    filters: ClassVar[tuple[str, ...]] = ("reason", "queue", "name")

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method != "POST":
            return super().changelist_view(request, extra_context)
        action, ids = request.POST.get("action", ""), request.POST.getlist("_selected_action")
        self._refuse_unless(action in self._allowed(request))
        try:
            return self._act(request, action, ids)
        except RelierError as error:
            self.message_user(request, f"Nothing more was changed: {error}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def _allowed(self, request: HttpRequest) -> dict[str, str]:
        labels = {"replay": ("change", "Replay: run the tasks again"), "discard": ("delete", "Discard: delete them")}
        return {
            action: label
            for action, (verb, label) in labels.items()
            if request.user.has_perm(f"relier.{verb}_deadletter")
        }

    def _act(self, request: HttpRequest, action: str, ids: list[str]) -> HttpResponse:
        """Ask for confirmation, and carry out an action that was confirmed."""
        dead = reading.dead_among(ids)
        if not dead:
            self.message_user(request, "None of the selected tasks is dead; nothing was changed.", messages.WARNING)
        elif "confirmed" not in request.POST:
            return self._page(request, "ledger_confirm.html", action=action, rows=list(map(reading.TaskRow.of, dead)))
        else:
            done = (reading.replay if action == "replay" else reading.discard)(dead)
            self._log(request, action, done)
            what = "will run again" if action == "replay" else "were discarded"
            self.message_user(request, f"{len(done)} of the tasks {what}.", messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())

    def _log(self, request: HttpRequest, action: str, done: list[Any]) -> None:
        letters = [DeadLetter(id=record.id, name=record.name) for record in done]
        flag, said = (CHANGE, "Replayed.") if action == "replay" else (DELETION, "Discarded.")
        if letters:
            LogEntry.objects.log_actions(request.user.pk, letters, flag, said)
