-- Reads events of one topic, from a reader's position on.
-- ARGV: topic, position ('now': only later entries; 'start': all that are left; else the id of the last entry read, `<number>-<µs>`,
--       with 0 µs if no entry has that number), max entries, again ('1': include the entry at the position)
-- returns: {'ok' | 'missed', how many changes were missed ('' unknown, or none), position before the entries,
--           {id, field, value} of each entry, …}
-- Checks whether the entry at the position still exists. It does not if the stream was trimmed, emptied or rolled back: then an
-- entry with the same number may be an unrelated one. A reader that missed something continues at the oldest entry that is left
-- or, if the stream was emptied or rolled back, at the first one that is later than its position.
local topic, position, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local stream = EVENTS .. topic

local function answer(said, count, from, rows)
  local found = {said, count, from}
  for i, row in ipairs(rows) do found[i + 3] = {row[1], row[2][1], row[2][2]} end
  return found
end

local function at_number(n) return string.format('%.0f-0', n) end
local function first_number(row) return string.match(row[1], '^%d+') - string.match(row[2][1], '%d+$') + 1 end
local function page(from) return redis.call('XRANGE', stream, from, '+', 'COUNT', most + 1) end
local function number() return tonumber(redis.call('GET', EVENT_NUMBERS .. topic) or 0) end

local function newest()
  local row = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  return row and row[1] or at_number(number())
end

if position == 'now' then return answer('ok', '', newest(), {}) end
if position == 'start' then
  local rows = page('-')
  return answer('ok', '', at_number(rows[1] and first_number(rows[1]) - 1 or number()), rows)
end

local n, us = string.match(position, '^(%d+)-(%d+)$')
n, us = tonumber(n), tonumber(us)
if us > 0 then
  local rows = page(position)
  if rows[1] and rows[1][1] == position then
    if ARGV[4] ~= '1' then table.remove(rows, 1) end
    return answer('ok', '', position, rows)
  end
else
  local rows = page(at_number(n + 1))
  if rows[1] and first_number(rows[1]) == n + 1 or not rows[1] and number() == n then return answer('ok', '', position, rows) end
end

local left = page('-')
local next = left[1] and first_number(left[1]) or number() + 1
if next > n then return answer('missed', next > n + 1 and string.format('%.0f', next - 1 - n) or '', at_number(next - 1), left) end
local later = {}
for _, row in ipairs(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', most)) do
  if tonumber(string.match(row[1], '%d+$')) <= us then break end
  table.insert(later, 1, row)
end
return answer('missed', '', later[1] and at_number(first_number(later[1]) - 1) or newest(), later)
