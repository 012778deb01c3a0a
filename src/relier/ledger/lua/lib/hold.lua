-- Reads and writes the mark of a lock that user code takes. The mark is one string:
--   <state> <until> <token> <owner> <task> <fence>\n<result>
-- state: `held` while its owner works, `done` once there is a result. until: when the mark expires (TIME, ms). The key
-- expires later: an hour later for `held`, because the owner may report its result only after an outage, and a minute later for
-- `done`. token: identifies the call that took the lock. owner: the worker id if a task took it, otherwise a host and process, for
-- people. task, fence: the attempt, or '-' outside a task.
-- A key in any other form holds no lock.
-- use: time
local HOLD = '^(%l+) (%d+) (%S+) ((%S+) (%S+) (%S+))\n()'

local function read_hold(text)
  if type(text) ~= 'string' then return {} end   -- no key, or one of the wrong type
  local state, till, token, holder, owner, task, fence, body = string.match(text, HOLD)
  return {state = state, till = tonumber(till), token = token, holder = holder, owner = owner, task = task,
    fence = tonumber(fence), body = body}
end

local function write_hold(key, state, ms, token, holder, result)
  redis.call('SET', key, state .. ' ' .. string.format('%.0f', now + ms) .. ' ' .. token .. ' ' .. holder .. '\n' .. result,
    'PX', string.format('%.0f', ms + (state == 'done' and LINGER or BACKSTOP)))
end

-- Returns whether a mark belongs to the caller's token, and the mark. An expired mark still belongs to its token until
-- another call takes the lock.
local function own_hold(key, token)
  local hold = read_hold(redis.pcall('GETRANGE', key, 0, HEAD_BYTES))
  if not hold.state then return 'missing', hold end
  if hold.token ~= token then return 'stale', hold end
  return 'ok', hold
end
