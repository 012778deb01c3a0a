-- Fires a schedule: submits the tasks of due occurrences and advances to the next one. Any number of schedulers may call this. The
-- script accepts only a call with the stored version and intended time, so only the first call succeeds.
-- ARGV: name, version, intended time (ms), next intended time (ms, '' = there is none), number of due occurrences that are not run,
--       overlap (allow | skip), n runs, then per run: its intended time (ms), its task (see lib/item.lua)
-- returns: {verdict, state, version, next intended time ('' none), {outcome, id, …}}, as stored afterwards
--   verdict: ok | stale (a different version or time is stored, or it is not active; perhaps this call has already run) | missing
--            early (by TIME, not all of these are due yet)
--   outcome: fired | duplicate (the id is known, or another task has the idempotency key) | skipped_overlap
-- Admission limits do not apply, as for follow-ups.
-- use: time item record tell close enter schedule_record
local name, intended, n = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[7])
local s = read_schedule(name)
if not s then return {'missing', '', '0', '', {}} end
local function answer(verdict, outcomes) return {verdict, s.state, s.version, s.next, outcomes or {}} end
if s.version ~= ARGV[2] or s.state ~= 'active' or s.next ~= ARGV[3] then return answer('stale') end
local last = math.max(intended, n > 0 and tonumber(ARGV[8 + (ITEM + 1) * (n - 1)]) or 0)
if last > now then return answer('early') end

local function is_live(id)
  local state = id ~= '' and read(id).state
  return state == 'scheduled' or state == 'queued' or state == 'running'
end

local outcomes, rows = {}, {}
local function note_fire(outcome, at, id, skipped)
  rows[#rows + 1] = cjson.encode({outcome, tostring(at), digits(now), id, tostring(skipped)})
  if telling then news('schedules', outcome, name, id, 'active', 'active', s.version, outcome == 'missed' and skipped or at) end
end

if ARGV[5] ~= '0' then note_fire('missed', ARGV[3], '', ARGV[5]) end
for i = 1, n do
  local a = 9 + (ITEM + 1) * (i - 1)
  local outcome, id = 'fired', ARGV[a]
  if ARGV[6] == 'skip' and is_live(s.last) then
    outcome, id = 'skipped_overlap', s.last
  else
    local known = look(a)
    if known then outcome, id = 'duplicate', known[2] else enter(a, i, false, true) end
    if id == ARGV[a] then s.last = id end
  end
  note_fire(outcome, ARGV[a - 1], id, 0)
  outcomes[2 * i - 1], outcomes[2 * i] = outcome, id
end
line_up()

s.next = ARGV[4]
if s.next == '' then
  s.state = 'ended'
  if telling then news('schedules', 'ended', name, '', 'active', 'ended', s.version, '') end
end
redis.call('HSET', SCHEDULE .. name, 'state', s.state, 'last', s.last, 'fired', digits(last))
redis.call('ZADD', SCHEDULES .. s.group, s.next == '' and '+inf' or s.next, name)
for _, row in ipairs(rows) do redis.call('LPUSH', FIRES .. name, row) end
redis.call('LTRIM', FIRES .. name, 0, FIRES_KEPT - 1)
close()
return answer('ok', outcomes)
