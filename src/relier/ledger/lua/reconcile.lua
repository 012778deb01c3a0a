-- Repairs what something else damaged: checks some keys and index entries, and repairs the damaged ones. Nothing else changes. There is no
-- leader: workers share one cursor over the keyspace, and the store paces them.
-- ARGV: cursor that the caller read ('' = it asks whether it may take a turn), the cursor after this page, then per subject: kind (see
-- ledger/keys.py),
--       what the key is per, one member of it ('' = the key itself)
-- returns: {the shared cursor, pages that the caller may look at now, subjects looked at, kind of damage, how often it was repaired, …}
--   After MOST_REPAIRS repairs a call ends, so that its work is bounded: the caller sends the other subjects again.
-- META has `repair`: `<cursor> <TIME (ms) of the last turn>`.
-- use: time
redis.call('HDEL', META, 'full')   -- a full store accepts this command, and then the writes after it
local cursor, last = string.match(redis.call('HGET', META, 'repair') or '0 0', '^(%d+) (%d+)$')
cursor, last = cursor or '0', tonumber(last or 0)
local function note_turn(at) redis.call('HSET', META, 'repair', string.format('%s %.0f', cursor, at)) end

-- Most calls only ask, and end here.
if ARGV[1] == '' then
  if last > now then last = 0 end   -- TIME has gone back
  local pages = math.min(REPAIR_PAGES, math.floor((now - last) / REPAIR_EVERY))
  if pages > 0 then note_turn(now) end
  return {cursor, pages, 0}
end

-- here: close mend mend_tasks mend_limits mend_batches mend_marks
local MOST_REPAIRS = 100
local of_keys = {task = mend_task, lane = mend_lane, ready = mend_queue, bell = mend_queue, owned = mend_owner, batch = mend_batch,
  lock = mend_lock, idem = mend_key, more = mend_side, history = mend_side, checkpoint = mend_side, steps = mend_side,
  worker = mend_node, asked = mend_node, members = mend_beside, plans = mend_beside, results = mend_beside}
local of_members = {due = mend_entry, ready = mend_entry, lane = mend_entry, owned = mend_entry, slots = mend_slot,
  lanes = mend_listed, sleepers = mend_sleeper, pacers = mend_pacer, members = mend_member, batches = mend_listed_batch,
  waiting = mend_waiting}

local looked, subjects = 0, (#ARGV - 2) / 3   -- counted first: workflow.lua adds to ARGV
for i = 3, #ARGV, 3 do
  if repaired.all >= MOST_REPAIRS then break end
  local kind, of, member = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local mend = member == '' and of_keys[kind] or member ~= '' and of_members[kind]
  -- A key of the wrong type stops the repair of that subject only: `rl audit` reports it.
  if mend then pcall(mend, of, member, kind) end
  looked = looked + 1
end
if looked == subjects and ARGV[1] == cursor then
  cursor = ARGV[2]
  note_turn(last)
end
close()
return {cursor, 0, looked, unpack(repaired)}
