-- Takes a lock for user code, unless another caller holds it or the guarded work is already done. The mark of a lock is valid
-- until it expires. If a task took it, it is also invalid once its worker is lost, and for a later attempt of that task.
-- ARGV: key, token, how long it is valid unless renewed (ms), owner (the worker id inside a task, else host and process), task id,
--       fence ('-' and '-' outside a task)
-- returns: {'claimed'}, also for a repeated call | {'in_flight', ms left, owner, task id} | {'completed', result}
--          {'gone'} the caller's worker is lost, so its mark would not keep others out
-- use: time hold
local key, token, owner, task, fence = LOCK .. ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]

local function is_lost(boot)
  local lease = redis.call('ZSCORE', BOOTS, boot)
  return not lease or lease == '0'
end

if task ~= '-' and is_lost(owner) then return {'gone'} end
local text = redis.pcall('GET', key)
local hold = read_hold(text)
if hold.state and hold.till > now then
  if hold.state == 'done' then return {'completed', string.sub(text, hold.body)} end
  if hold.token == token then return {'claimed'} end
  local outlived = hold.task == task and hold.fence and hold.fence < (tonumber(fence) or 0)
  if not outlived and not (hold.task ~= '-' and is_lost(hold.owner)) then
    return {'in_flight', hold.till - now, hold.owner, hold.task}
  end
end
-- Even a full store accepts this write, and the writes after it, so that a running task can continue. A lock outside tasks
-- is refused like a push.
if task ~= '-' then redis.call('HDEL', META, 'full') end
write_hold(key, 'held', tonumber(ARGV[3]), token, owner .. ' ' .. task .. ' ' .. fence, '')
return {'claimed'}
