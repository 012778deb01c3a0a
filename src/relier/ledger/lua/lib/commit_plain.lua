-- The plain tasks a batch begins with, each in one straight line: no follow-ups, no flag in the record. Mostly that is
-- all of them. The first that is not so, or is not this owner's under this fence, and what comes after it, is left to
-- the rest of the script.
-- use: layout
local boot, n, i, a, answers, rows = ARGV[2], tonumber(ARGV[3]), 1, 4, {}, {}
local eol, expiry = string.format('%.0f', now + RESULT_TTL), string.format('%.0f', RESULT_TTL + BACKSTOP)
while i <= n and ARGV[a + 4] == '0' do
  local id = ARGV[a]
  local text = redis.pcall('GETRANGE', TASK .. id, 0, 1400)
  local state, version, fence, owner, attempt, flags, _, width, body =
    string.match(type(text) == 'string' and text or '', RECORD)
  if state ~= 'running' or fence ~= ARGV[a + 1] or owner ~= boot or flags ~= '-' or width ~= WIDTH + 1 then break end
  local line = string.format('%-96s', 'done ' .. version + 1 .. ' ' .. fence .. ' ' .. boot .. ' ' .. attempt ..
    (ARGV[a + 2] == '1' and ' y ' or ' - ') .. now)
  redis.call('ZREM', OWNED .. boot, id)
  redis.call('SET', TASK .. id, line .. string.sub(text, WIDTH + 1, body - 1) .. ARGV[a + 3], 'PX', expiry)
  rows[2 * i - 1], rows[2 * i], answers[i] = eol, id, 'ok'
  i, a = i + 1, a + 5
end
if i > 1 then
  redis.call('ZADD', ENDED .. 'done', unpack(rows))
  redis.call('HINCRBY', COUNTS, 'done', i - 1)
  if i > n then return answers end
end
