-- The attempt ends the task as dead, with a reason and all that is known, and enters the tasks that follow from that. Its
-- payload is kept for a replay.
-- ARGV: boot, 1, id, fence, reason, detail, part (see lib/join.lua),
--       n follow-ups, then per follow-up: see lib/item.lua
-- returns: {{verdict, state, fence}}
-- A follow-up that is here already is left alone; one that joins gets the part. Follow-ups pass no admission.
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
