"""Run attempts inside the processes and threads of Celery's pool.

- adopted_child.py  runs an adopted task with Celery's tracer, and reports its outcome to the worker
- rl_child.py       runs an `@rl_task` in a pool process
- coroutines.py     runs the bodies of `async def` tasks on an event loop
- shared_orders.py  shares memory with the pool processes: the lease, and orders such as "stop"
- asyncio_pool.py   provides `-P asyncio`
"""
