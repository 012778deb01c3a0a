-- Reads the record of a schedule: a hash with `version`, `state`, `group`, `origin`, `definition`, `last` (the id of its latest
-- run) and `fired` (the latest intended time that was fired). The score in the index of its group is the next intended time, or `inf`
-- while the schedule is not active. Returns nil if there is no record, or if it cannot be read.
-- use: record
local function read_schedule(name)
  local row = ask('HMGET', SCHEDULE .. name, 'version', 'state', 'group', 'origin', 'definition', 'last', 'fired')
  if not row or not row[1] or not row[2] or not row[3] or not row[5] then return nil end
  local at = redis.call('ZSCORE', SCHEDULES .. row[3], name)
  return {version = row[1], state = row[2], group = row[3], origin = row[4] or '', definition = row[5], last = row[6] or '',
    fired = tonumber(row[7]) or 0, next = at and at ~= 'inf' and digits(at) or ''}
end

-- Returns the latest intended time that any removed schedule had fired (ms; 0 = none).
local function fired_by_removed() return tonumber(redis.call('HGET', META, 'fired') or 0) end
