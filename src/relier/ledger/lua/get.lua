-- Reads everything about one task, as of one moment.
-- ARGV: id
-- returns: {record or tombstone ('' none), {field, value, …}, checkpoint, {step, value, …}, {history, …}, the cursor for further steps
--           (false: there are none; see steps.lua)} | {'corrupt'}
--          if there is no record, the namespace's birth mark ('' none) follows
-- A side key of an unexpected type counts as missing.
-- use: record step_page
local id = ARGV[1]
local record = redis.pcall('GET', TASK .. id)
if type(record) == 'table' then return {'corrupt'} end
if not record then return {'', {}, false, {}, {}, false, ask('HGET', META, 'born') or ''} end
local steps, left = step_page(id, '0', step_room())
return {record, ask('HGETALL', MORE .. id) or {}, ask('GET', CHECKPOINT .. id), steps, ask('LRANGE', HISTORY .. id, 0, -1) or {},
  left}
