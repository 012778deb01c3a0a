-- One task, whole and at one moment.
-- ARGV: id
-- returns: {record or tombstone ('' none), {field, value, …}, checkpoint, {step, value, …}, {history, …}, where the rest of the steps begins
--           (false: none is left; see steps.lua)} | {'corrupt'}
-- A side key of another type counts as none.
-- use: step_page
local id = ARGV[1]
local record = redis.pcall('GET', TASK .. id)
if type(record) == 'table' then return {'corrupt'} end
local steps, left = step_page(id, '0', step_room())
return {record or '', ask('HGETALL', MORE .. id) or {}, ask('GET', CHECKPOINT .. id), steps, ask('LRANGE', HISTORY .. id, 0, -1) or {},
  left}
