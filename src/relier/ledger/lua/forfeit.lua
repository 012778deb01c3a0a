-- The owner testifies that the process which ran exactly this task is gone. As in revive, but at once and by fence.
-- ARGV: boot, n, then per task: id, fence, cause
-- returns: {{verdict, state, fence}, …}
-- use: settle resurrect
return settle('forfeit', 3, function(id, r, a) return resurrect(id, r, true, ARGV[a + 2]) end)
