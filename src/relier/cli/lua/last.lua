-- Returns the last history line of each task, which a list of dead letters shows as the message. Reads only.
-- ARGV: id, …
-- returns: per id its last line ('' none)
-- use: record
local found = {}
for i, id in ipairs(ARGV) do found[i] = (ask('LRANGE', HISTORY .. id, -1, -1) or {})[1] or '' end
return found
