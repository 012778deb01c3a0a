-- Cancels a task at an operator's request. A waiting task ends now. A running one is asked to stop, and ends when its owner settles it or
-- the owner's lease runs out. The request applies only to the attempt that was running when it was made.
-- ARGV: id, version seen
-- returns: {verdict, state, version}   verdict: ok | asked | repeat | missing | corrupt | conflict | illegal
-- use: record close stop_task
local id = ARGV[1]
local r = read(id)
if not r.state then return {r.corrupt and 'corrupt' or 'missing', '', '0'} end
if r.state == 'cancelled' or (r.state == 'running' and has(r, 'c')) then return {'repeat', r.state, r.version} end
if r.version ~= ARGV[2] then return {'conflict', r.state, r.version} end
if r.state == 'done' or r.state == 'dead' then return {'illegal', r.state, r.version} end
local said = stop_task(id, r)
close()
return {said, r.state, r.version}
