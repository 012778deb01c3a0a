-- Runs a dead task again at an operator's request, unchanged or with a new payload. Its counters are reset; its history stays.
-- ARGV: id, version seen, nonce, has payload ('1' or ''), payload, fresh ('1': forget checkpoint and steps)
-- returns: {verdict, state, version}   verdict: ok | repeat | missing | corrupt | conflict | illegal | key_taken
-- use: time record spec tell close order notes key place
local id, version, nonce, edited, fresh = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[6] == '1'
local r = read(id)
local key = r.state and noted(id, r, 'key')

local function judge()
  if not r.state then return r.corrupt and 'corrupt' or 'missing' end
  if noted(id, r, 'replayed') == nonce then return 'repeat' end
  if r.version ~= version then return 'conflict' end
  if r.state ~= 'dead' then return 'illegal' end
  local other = key and holder(key)
  if other and other ~= id then return 'key_taken' end
  return 'ok'
end

local said = judge()
if said ~= 'ok' then return {said, r.state or '', r.version or '0'} end

local body = edited and ARGV[5] or string.sub(redis.call('GET', TASK .. id), r.body)
with_spec(r)
r.state, r.owner, r.attempt = 'queued', '-', 0
r.flags = string.gsub(r.flags, fresh and '[acks]' or '[ac]', '')
step_version(r)
-- Written as a whole, which removes the expiry: the record of a live task has none.
redis.call('SET', TASK .. id, head(r) .. body)
if telling then tell_record(id, r) end
beside('HSET', MORE .. id, 'replayed', nonce)
redis.call('HDEL', MORE .. id, 'reason', 'retries', 'deaths', 'scares', 'since', 'locked_since', 'settled')
if edited then redis.call('HINCRBY', MORE .. id, 'revision', 1) end
if fresh then
  redis.call('UNLINK', CHECKPOINT .. id, STEPS .. id)
  redis.call('HDEL', MORE .. id, 'checkpoint')
end
for _, kind in ipairs({MORE, HISTORY, CHECKPOINT, STEPS}) do redis.call('PERSIST', kind .. id) end
redis.call('ZREM', ENDED .. 'dead', id)
if key then redis.call('SET', IDEM .. key, id) end
if has(r, 'b') then
  -- here: rejoin
  rejoin(id)
end
if has(r, 'l') then
  -- here: lanes
  count_limited(id, 1)
end
place(id, r, order(now_us, r.priority))
count('replayed')
if r.held then count('bytes', r.held) end
close()
return {'ok', 'queued', r.version}
