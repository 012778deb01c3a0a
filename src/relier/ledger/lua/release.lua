-- Hands tasks back unfinished, at once and without using up an attempt, on shutdown or if a claimed task never started. They
-- return to the place in the queue that their age gives them.
-- ARGV: boot, n, then per task: id, fence
-- returns: {{verdict, state, fence}, …}
-- use: close requeue settle
return settle('release', 2, function(id, r)
  count('released')
  r.attempt = r.attempt - 1
  return requeue(id, r)
end)
