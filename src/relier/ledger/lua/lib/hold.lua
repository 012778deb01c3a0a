-- The mark of a lock that user code takes, one string:
--   <state> <until> <token> <owner> <task> <fence>\n<result>
-- state: `held` while its owner works, `done` once there is a result. until: when it stops counting (TIME, ms); the expiry
-- of the key comes later: an hour for `held`, because whoever did the work tells so after an outage, too, and a minute for
-- `done`. token: of the one call that took it. owner: its boot where a task took it, else
-- a place people can find; task, fence: that attempt, '-' outside a task.
-- A key that does not read as this holds nothing.
-- use: time
local HOLD = '^(%l+) (%d+) (%S+) ((%S+) (%S+) (%S+))\n()'

local function read_hold(text)
  if type(text) ~= 'string' then return {} end   -- none, or a key of another type
  local state, till, token, holder, owner, task, fence, body = string.match(text, HOLD)
  return {state = state, till = tonumber(till), token = token, holder = holder, owner = owner, task = task,
    fence = tonumber(fence), body = body}
end

local function write_hold(key, state, ms, token, holder, result)
  redis.call('SET', key, state .. ' ' .. string.format('%.0f', now + ms) .. ' ' .. token .. ' ' .. holder .. '\n' .. result,
    'PX', string.format('%.0f', ms + (state == 'done' and LINGER or BACKSTOP)))
end

-- What a mark looks like to the one who says that it is his. A mark whose time is over is still his while nobody took it.
local function own_hold(key, token)
  local hold = read_hold(redis.pcall('GETRANGE', key, 0, HEAD_BYTES))
  if not hold.state then return 'missing', hold end
  if hold.token ~= token then return 'stale', hold end
  return 'ok', hold
end
