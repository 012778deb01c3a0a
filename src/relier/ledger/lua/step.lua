-- Records the result of a named step, once: the first result recorded under a valid fence wins.
-- ARGV: boot (worker id), id, fence, name, value, durable ('1' or '')
-- returns: {verdict, state, fence, recorded value}   repeat: the step was recorded before; this is that value
-- use: record close notes lease
local id, name, value = ARGV[2], ARGV[4], ARGV[5]
local r = read(id)
local said = verdict(id, r, 'step', ARGV[3], ARGV[1])
close()
if said ~= 'ok' then return {said, r.state or '', r.fence or '0', false} end
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it: a running task can continue
if beside('HSETNX', STEPS .. id, name, value) == 0 then
  if ARGV[6] == '1' then
    -- here: touch
    touch()
  end
  return {'repeat', r.state, r.fence, redis.call('HGET', STEPS .. id, name)}
end
if not has(r, 's') then
  mark(r, 's')
  redis.call('SETRANGE', TASK .. id, 0, core(r))
end
return {said, r.state, r.fence, value}
