from __future__ import annotations

from dataclasses import asdict

from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from orders.models import Order, Report
from orders.tasks import make_report, pay
from relier import TaskNotFoundError, TaskState


class OrderForm(ModelForm):
    class Meta:
        model = Order
        fields = ("item", "cents")


def customer_of(request: HttpRequest) -> str:
    """Return who asks. A real shop has users who log in; this one has ann and bob."""
    return request.session.get("customer", "ann")


@require_GET
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "orders/page.html", {"customer": customer_of(request)})


@require_POST
def switch_customer(request: HttpRequest) -> HttpResponse:
    request.session["customer"] = "bob" if customer_of(request) == "ann" else "ann"
    return redirect("/")


@require_http_methods(["GET", "POST"])
def orders(request: HttpRequest) -> HttpResponse:
    """List the orders of the customer, or place one."""
    customer = customer_of(request)
    if request.method == "GET":
        found = Order.objects.filter(customer=customer).order_by("-pk")
        return JsonResponse({"orders": list(found.values("id", "item", "cents", "status"))})
    form = OrderForm(request.POST)
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=422)
    with transaction.atomic():  # the order and its payment are stored together: there is never one without the other
        order = form.save(commit=False)
        order.customer = customer
        order.save()
        pay.push_in("default", order.pk, request.POST.get("card", "valid"))
    return JsonResponse({"order": order.pk}, status=201)


@require_POST
def pay_again(request: HttpRequest, order: int) -> HttpResponse:
    """Pay an order whose first card was declined. However often this is clicked, the order is paid once."""
    with transaction.atomic():
        found = get_object_or_404(Order, pk=order, customer=customer_of(request))
        if found.status != Order.Status.PAID:
            found.status = Order.Status.WAITING
            found.save()
            pay.push_in("default", order, "valid")
    return JsonResponse({"order": order}, status=202)


@require_POST
def start_report(request: HttpRequest) -> HttpResponse:
    customer = customer_of(request)
    with transaction.atomic():
        receipt = make_report.push_in("default", customer)
        Report.objects.create(customer=customer, task=receipt.id)
    return JsonResponse({"task": receipt.id}, status=202)


@require_GET
def report(request: HttpRequest, task: str) -> HttpResponse:
    """Answer 202 with the progress of a report, and 200 once the report has ended."""
    get_object_or_404(Report, task=task, customer=customer_of(request))
    receipt = make_report.sync_receipt(task)
    state, progress = receipt.state(), receipt.progress()
    body = {"state": state, "progress": progress and asdict(progress)}
    if state is TaskState.DONE:
        return JsonResponse(body | {"result": receipt.result()})
    ended = state in {TaskState.DEAD, TaskState.CANCELLED, TaskState.EXPIRED}
    return JsonResponse(body, status=200 if ended else 202)  # `not-found`: the relay has not sent it yet


@require_POST
def cancel_report(request: HttpRequest, task: str) -> HttpResponse:
    get_object_or_404(Report, task=task, customer=customer_of(request))
    try:
        return JsonResponse({"cancelled": make_report.sync_receipt(task).cancel()})
    except TaskNotFoundError:
        return JsonResponse({"detail": "The report is not queued yet. Try again in a second."}, status=409)
