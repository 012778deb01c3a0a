-- Cancels a task for a person. A waiting task ends now. A running one is asked to stop, and ends when its owner settles it or
-- the owner's lease runs out. The request applies only to the attempt that ran when it was made.
-- ARGV: id, version seen
-- returns: {verdict, state, version}   verdict: ok | asked | repeat | missing | corrupt | conflict | illegal
-- use: record spec close notes finish_why
local id = ARGV[1]
local r = read(id)
if not r.state then return {r.corrupt and 'corrupt' or 'missing', '', '0'} end
if r.state == 'cancelled' or (r.state == 'running' and has(r, 'c')) then return {'repeat', r.state, r.version} end
if r.version ~= ARGV[2] then return {'conflict', r.state, r.version} end
if r.state == 'done' or r.state == 'dead' then return {'illegal', r.state, r.version} end
redis.call('ZREM', DUE, id)
if r.state == 'running' then
  mark(r, 'c')
  r.version = r.version + 1
  redis.call('SETRANGE', TASK .. id, 0, core(r))
  redis.call('SADD', ASKED .. r.owner, id .. ' ' .. r.fence)
  return {'asked', 'running', r.version}
end
with_spec(r)
redis.call('ZREM', READY .. r.queue, id)
finish_cancelled(id, r, 'cancelled')
close()
return {'ok', 'cancelled', r.version}
