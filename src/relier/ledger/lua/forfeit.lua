-- Revives a task whose owner reports that the isolated process running only this task has died. Works like revive, but at
-- once and by fence.
-- ARGV: boot (worker id), n, then per task: id, fence, cause
-- returns: {{verdict, state, fence}, …}
-- use: settle resurrect
return settle('forfeit', 3, function(id, r, a) return resurrect(id, r, true, ARGV[a + 2]) end)
