-- Removes an ended record before its retention is over, at an operator's request.
-- ARGV: id, version seen
-- returns: {verdict, state, version}   verdict: ok | missing | corrupt | conflict | illegal (the task has not ended)
-- use: record close remove
local id, version = ARGV[1], ARGV[2]
local r = read(id)
local state = r.state
if not state then return {r.corrupt and 'corrupt' or 'missing', '', '0'} end
if r.version ~= version then return {'conflict', state, r.version} end
if state ~= 'done' and state ~= 'dead' and state ~= 'cancelled' then return {'illegal', state, r.version} end
remove(id, r, state)
count('discarded')
close()
return {'ok', state, version}
