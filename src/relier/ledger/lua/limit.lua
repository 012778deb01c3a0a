-- Sets the numbers of a limit for an operator, by its name or by one of its keys, or clears them, so that the tasks' own numbers
-- apply again. Then checks one page of lanes, and wakes those that have room now. The caller repeats the call with the cursor until
-- it is empty.
-- ARGV: name or key, version seen ('0' = never set), concurrency ('' = clear), interval (µs), tolerance (µs), cursor ('0' = begin)
-- returns: {'ok' | 'repeat' | 'conflict', version, next cursor ('' = end)}
-- use: time tell close lanes pace tidy_lanes
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
local name, cleared = ARGV[1], ARGV[3] == ''
local stored = redis.call('HGET', LIMITS, name)
local version = stored and string.match(stored, '(%d+)$') or '0'
local wanted = not cleared and ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5]
local same = cleared and not stored or stored and wanted and string.match(stored, '^(%d+ %d+ %d+) ') == wanted
if not same and version ~= ARGV[2] then return {'conflict', version, ''} end
if not same then
  version = cleared and '0' or string.format('%.0f', version + 1)
  if cleared then redis.call('HDEL', LIMITS, name) else redis.call('HSET', LIMITS, name, wanted .. ' ' .. version) end
  if telling then news('cluster', cleared and 'limit_cleared' or 'limit_set', name, '', '', '', version, wanted or '') end
end
-- A head that waits for a rate must not wait longer than the new numbers require.
local function hasten(id)
  local due = redis.call('ZSCORE', DUE, id)
  local sooner = due and (paced_until(limits_of(id)) or now)
  if sooner and sooner < tonumber(due) then redis.call('ZADD', DUE, sooner, id) end
end

local page = redis.call('HSCAN', LANES, ARGV[6], 'COUNT', 50)
local asleep = {}
for i = 1, #page[2], 2 do
  local head = string.match(page[2][i + 1], '^%+(.*)$')
  if head then hasten(head) else asleep[#asleep + 1] = page[2][i] end
end
table.sort(asleep)
for _, lane in ipairs(asleep) do tidy_lane(lane) end
close()
return {same and 'repeat' or 'ok', version, page[1] == '0' and '' or page[1]}
