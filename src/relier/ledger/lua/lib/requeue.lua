-- Returns a task to its queue, or to the schedule. A task whose cancellation was requested ends here instead. Both functions return
-- the task's new state.
-- use: record spec order notes finish_why place
local function requeue(id, r, at_us)
  if has(r, 'c') then
    finish_cancelled(id, r, 'cancelled')
    return 'cancelled'
  end
  with_spec(r)
  r.state, r.owner = 'queued', '-'
  save(id, r)
  place(id, r, order(at_us or r.at, r.priority))
  return 'queued'
end

-- `keeps`: once due, the task is ordered by its age, not by the time at which it was due.
local function reschedule(id, r, due_ms, keeps)
  if has(r, 'c') then
    finish_cancelled(id, r, 'cancelled')
    return 'cancelled'
  end
  if keeps then mark(r, 'p') else unmark(r, 'p') end
  r.state, r.owner = 'scheduled', '-'
  save(id, r)
  redis.call('ZADD', DUE, due_ms, id)
  return 'scheduled'
end
