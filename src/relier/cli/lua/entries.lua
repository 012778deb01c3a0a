-- What some entries of an index lead to, at one moment. Reads only.
-- ARGV: the index's key, id, …
-- returns: {TIME (ms), per id {its score there ('' no longer), what its task is, the task's home ('' none)}}
-- use: time record home
local found = {now}
for i = 2, #ARGV do
  local r = read(ARGV[i])
  local home = home_of(r)
  found[i] = {ask('ZSCORE', ARGV[1], ARGV[i]) or '', what(r), home and string.sub(home, #P + 1) or ''}
end
return found
