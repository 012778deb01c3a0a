-- One task, whole and at one moment.
-- ARGV: id
-- returns: {record or tombstone ('' none), {field, value, …}, checkpoint, {step, value, …}, {history, …}} | {'corrupt'}
-- A side key of another type counts as none.
-- use: record
local id = ARGV[1]
local record = redis.pcall('GET', TASK .. id)
if type(record) == 'table' then return {'corrupt'} end
return {record or '', ask('HGETALL', MORE .. id) or {}, ask('GET', CHECKPOINT .. id), ask('HGETALL', STEPS .. id) or {},
  ask('LRANGE', HISTORY .. id, 0, -1) or {}}
