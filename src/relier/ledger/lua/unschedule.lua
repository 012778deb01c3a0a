-- Removes a schedule with its history. Tasks that it fired continue.
-- ARGV: durable ('1' or ''), name, version seen
-- returns: {'ok' | 'missing' | 'conflict', state, version}
-- use: record schedule_record tell touch
local name = ARGV[2]
local s = read_schedule(name)
if not s then
  if ARGV[1] == '1' then touch() end
  return {'missing', '', '0'}
end
if s.version ~= ARGV[3] then return {'conflict', s.state, s.version} end
redis.call('ZREM', SCHEDULES .. s.group, name)
redis.call('UNLINK', SCHEDULE .. name, FIRES .. name)
if s.fired > fired_by_removed() then redis.call('HSET', META, 'fired', digits(s.fired)) end
if telling then
  news('schedules', 'removed', name, '', s.state, '', s.version, '')
  publish_all()
end
return {'ok', s.state, s.version}
