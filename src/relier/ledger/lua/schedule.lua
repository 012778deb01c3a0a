-- Writes a schedule: creates, edits, pauses, resumes or disables it. An edit never fires past times: the next intended time must lie in the
-- future and, because TIME may go back, after the latest one that was fired. For a new schedule, firings of removed schedules count. Nor
-- does an edit drop an occurrence that is already due: the caller fires it first, under the old version.
-- ARGV: durable ('1' or ''), name, group (who fires it), origin (the code that declares it; '' = created at run time),
--       version seen ('0' = it must not exist, '*' = declare: replaces a declaration of other code under this name), state,
--       next intended time (ms, '' unless active), definition
-- returns: {verdict, state, version, next intended time ('' none), floor (ms), origin, definition}, as stored afterwards
--   verdict: ok | repeat (nothing to change) | conflict (a different version is stored) | missing
--            taken (declare: it was created at run time, or another group fires it)
--            late (the next intended time is not after `floor`: compute it again from there)
--            due (the stored version is due: fire it first)
-- Versions are like fences: `max(old + 1, TIME in µs)`. If the store loses its latest writes, the lost versions are never used again
-- for other content. A declaration leaves a paused schedule paused, and an ended schedule ended.
-- use: time record schedule_record tell touch
local name, group, origin, seen, state, definition = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[8]
local s = read_schedule(name)
local declares = seen == '*'
local floor = math.max(now, s and s.fired or fired_by_removed())

local function answer(verdict)
  s = s or {state = '', version = '0', next = '', origin = '', definition = ''}
  return {verdict, s.state, s.version, s.next, digits(floor), s.origin, s.definition}
end

if declares and s and (s.origin == '' or s.group ~= group) then return answer('taken') end
local same = s and s.definition == definition and s.group == group and (declares or s.origin == origin)
if declares and s and (s.state == 'paused' or same and s.state == 'ended') then state = s.state end
if same and s.state == state then
  if s.origin ~= origin then
    redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
    redis.call('HSET', SCHEDULE .. name, 'origin', origin)
    s.origin = origin
  end
  if ARGV[1] == '1' then touch() end
  return answer('repeat')
end
if not declares and seen ~= (s and s.version or '0') then return answer(s and 'conflict' or 'missing') end

local ahead = state == 'active' and tonumber(ARGV[7]) or nil
if s and s.state == 'active' and s.next ~= '' and tonumber(s.next) <= now and (ahead or state == 'ended') then return answer('due') end
if ahead and ahead <= floor then return answer('late') end

-- Even a full store accepts this write, and the writes after it. So a schedule that fills the store can be paused.
if not ahead then redis.call('HDEL', META, 'full') end
local version = digits(math.max(s and s.version + 1 or 0, now_us))
redis.call('HSET', SCHEDULE .. name, 'version', version, 'state', state, 'group', group, 'origin', origin, 'definition', definition)
if s and s.group ~= group then redis.call('ZREM', SCHEDULES .. s.group, name) end
redis.call('ZADD', SCHEDULES .. group, ahead or '+inf', name)
if telling then
  local kind = not s and 'created' or s.state == state and 'changed' or state == 'active' and 'resumed' or state
  news('schedules', kind, name, '', s and s.state or '', state, version, '')
  publish_all()
end
s = read_schedule(name)
return answer('ok')
