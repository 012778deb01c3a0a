-- The steps of a task from a cursor on, where one answer did not hold them all.
-- ARGV: id, cursor
-- returns: {{step, value, …}, false at the end or the next cursor}
-- use: step_page
local found, left = step_page(ARGV[1], ARGV[2], step_room())
return {found, left}
