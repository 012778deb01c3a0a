-- The attempt ends the task as dead, with a reason and all that is known. Its payload is kept for a replay.
-- ARGV: boot, n, then per task: id, fence, reason, detail
-- returns: {{verdict, state, fence}, …}
-- use: settle finish_why log
return settle('bury', 4, function(id, r, a)
  log(id, r, 'bury', ARGV[a + 3])
  finish_dead(id, r, ARGV[a + 2])
  return 'dead'
end)
