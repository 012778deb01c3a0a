-- One task, whole and at one moment.
-- ARGV: id
-- returns: {record or tombstone ('' none), {field, value, …}, checkpoint, {step, value, …}, {history, …}} | {'corrupt'}
local id = ARGV[1]
local record = redis.pcall('GET', TASK .. id)
if type(record) == 'table' then return {'corrupt'} end
return {record or '', redis.call('HGETALL', MORE .. id), redis.call('GET', CHECKPOINT .. id),
  redis.call('HGETALL', STEPS .. id), redis.call('LRANGE', HISTORY .. id, 0, -1)}
