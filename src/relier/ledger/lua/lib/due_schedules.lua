-- Reads the due schedules of a group in the order of their intended times: skips the first `skip`, and returns at most DUE_SCHEDULES.
-- Corrects an entry of the index that does not match its record. Otherwise it would be due forever.
-- use: time close schedule_record
-- returns: {{name, version, intended time (ms), definition}, …}, and when the next one is due (ms; nil = there is none)
local function due_schedules(group, skip)
  local index, found = SCHEDULES .. group, {}
  local rows = redis.call('ZRANGEBYSCORE', index, '-inf', '(+inf', 'WITHSCORES', 'LIMIT', skip, DUE_SCHEDULES + 1)
  for i = 1, #rows, 2 do
    local name = rows[i]
    if tonumber(rows[i + 1]) > now then return found, rows[i + 1] end
    if #found == DUE_SCHEDULES then break end
    local s = read_schedule(name)
    if not s or s.group ~= group then
      redis.call('ZREM', index, name)
      count('strays')
    elseif s.state ~= 'active' then
      redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
      redis.call('ZADD', index, '+inf', name)
      count('strays')
    else
      found[#found + 1] = {name, s.version, s.next, s.definition}
    end
  end
  return found, nil
end
