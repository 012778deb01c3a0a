-- Returns, for entries of an index, the tasks that they refer to, as of one moment. Reads only.
-- ARGV: the index's key, id, …
-- returns: {TIME (ms), per id {its score in the index ('' = no longer there), the state of its task (see lib/home.lua), the index the task
--           belongs in ('' none)}}
-- use: time record home
local found = {now}
for i = 2, #ARGV do
  local r = read(ARGV[i])
  local home = home_of(ARGV[i], r)
  found[i] = {ask('ZSCORE', ARGV[1], ARGV[i]) or '', what(r), home and string.sub(home, #P + 1) or ''}
end
return found
