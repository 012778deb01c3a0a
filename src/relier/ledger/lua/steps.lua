-- Reads a task's steps from a cursor on. Used if one answer could not hold all of them.
-- ARGV: id, cursor
-- returns: {{step, value, …}, next cursor (false at the end)}
-- use: step_page
local found, left = step_page(ARGV[1], ARGV[2], step_room())
return {found, left}
