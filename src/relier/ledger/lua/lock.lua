-- Takes a lock for user code, unless another holds it or the guarded work is already done. A mark counts until its time is
-- up. A mark that a task took stops counting as soon as its worker's boot is lost, or for a later attempt of the same task.
-- ARGV: key, token, how long it counts without being renewed (ms), owner (its boot inside a task, else a place), task id,
--       fence ('-' and '-' outside a task)
-- returns: {'claimed'}, also to a repeat | {'in_flight', ms left, owner, task id} | {'completed', result}
--          {'gone'} the boot that asks is lost: its mark would hold nobody off
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
-- A full store accepts this command, and then the writes after it, so that a running task can continue. A lock outside tasks
-- is refused like a push.
if task ~= '-' then redis.call('HDEL', META, 'full') end
write_hold(key, 'held', tonumber(ARGV[3]), token, owner .. ' ' .. task .. ' ' .. fence, '')
return {'claimed'}
