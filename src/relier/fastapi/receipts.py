"""The receipt of the task whose id is in the path, for endpoints of the application's own.

ReportReceipt = Annotated[TaskReceipt[Report], Depends(receipt_for(make_report, may_use=owner_in(current_user)))]

@app.get("/reports/{task_id}")
async def report(receipt: ReportReceipt) -> str: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from relier.fastapi.owners import MayUse, check_may_use, is_allowed
from relier.fastapi.tasks import NOT_FOUND
from relier.submit.receipt import TaskReceipt

if TYPE_CHECKING:
    from relier.task import RlTask

R = TypeVar("R")


def receipt_for(task: RlTask[Any, R], *, may_use: MayUse) -> Callable[[Request, str], Awaitable[TaskReceipt[R]]]:
    """Return a dependency: the receipt of the task whose id is the path parameter `task_id`.

    The answer is 404 if the user may not use the task. The store is not asked: the task may not exist.
    """
    check_may_use(may_use)

    async def receipt(request: Request, task_id: str) -> TaskReceipt[R]:
        if not await is_allowed(may_use, request, task_id):
            raise HTTPException(NOT_FOUND.status, NOT_FOUND.body["detail"])
        return task.receipt(task_id)

    receipt.__annotations__["return"] = TaskReceipt  # FastAPI evaluates annotations; it does not know R
    return receipt
