-- Returns unfinished tasks to their queues at once, without using up an attempt: on shutdown, or if a claimed task never started.
-- Their place in the queue depends on their age.
-- ARGV: boot (worker id), n, then per task: id, fence
-- returns: {{verdict, state, fence}, …}
-- use: close requeue settle
return settle('release', 2, function(id, r)
  count('released')
  r.attempt = r.attempt - 1
  return requeue(id, r)
end)
