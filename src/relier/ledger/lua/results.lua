-- Reads one page of the results of a batch's members, or a single field: the input of a link.
-- ARGV: batch, cursor, field ('' = all, starting at the cursor)
-- returns: {{field, value, …}, next cursor (false at the end)}
-- use: record step_page
if ARGV[3] == '' then
  local found, left = hash_page(RESULTS .. ARGV[1], ARGV[2], step_room())
  return {found, left}
end
local value = ask('HGET', RESULTS .. ARGV[1], ARGV[3])
return {value and {ARGV[3], value} or {}, false}
