-- Ends the task as dead, with a reason and a description of the failure, and enters its follow-up tasks. The payload is kept
-- for a replay.
-- ARGV: boot (worker id), 1, id, fence, reason, detail, part (see lib/join.lua),
--       n follow-ups, then per follow-up: see lib/item.lua
-- returns: {{verdict, state, fence}}
-- A follow-up that already exists is left alone; one that joins gets the part. Admission limits do not apply to follow-ups.
-- use: finish_why log settle
return settle('bury', 6, function(id, r, a)
  log(id, r, 'bury', ARGV[a + 3])
  finish_dead(id, r, ARGV[a + 2])
  if ARGV[a + 5] ~= '0' then
    -- here: follow
    follow(a + 6, tonumber(ARGV[a + 5]), ARGV[a + 4])
  end
  return 'dead'
end)
