-- Returns the live holder of an idempotency key: its id and record, or nil. A mark that has expired, or whose record is gone,
-- is ignored.
-- use: time record
local function holder(key)
  local id, till = string.match(ask('GET', IDEM .. key) or '', '^(%S+) ?(%d*)$')
  if not id or (till ~= '' and tonumber(till) <= now) then return nil end
  local r = read(id)
  if not r.state then return nil end
  return id, r
end
