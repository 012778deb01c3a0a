from __future__ import annotations

from django.db import models


class Order(models.Model):
    class Status(models.TextChoices):
        WAITING = "waiting"
        PAID = "paid"
        DECLINED = "declined"

    customer = models.CharField(max_length=100)
    item = models.CharField(max_length=100)
    cents = models.PositiveIntegerField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)

    def __str__(self) -> str:
        return f"{self.item} for {self.customer}"


class Report(models.Model):
    """Says whose task a report is, so that one customer cannot read another's report."""

    customer = models.CharField(max_length=100)
    task = models.CharField(max_length=64, unique=True)

    def __str__(self) -> str:
        return f"report for {self.customer}"
