-- Reads a task's steps from a cursor on, if one answer could not hold them all.
-- ARGV: id, cursor
-- returns: {{step, value, …}, false at the end or the next cursor}
-- use: step_page
local found, left = step_page(ARGV[1], ARGV[2], step_room())
return {found, left}
