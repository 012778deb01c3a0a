-- Claims one plain task that never ran, from one queue, for a claim that took no ring. Most claims are like this, and skip the
-- setup of the rest of claim.lua: 16 µs instead of 27 (make bench-ledger, claim, 1 to a script).
-- use: time layout tell outcomes
-- Returns the answer of claim.lua. If the task is not plain or the claim is not this simple, changes nothing and returns nil.
local function claim_one()
  if ARGV[4] ~= '1' or ARGV[6] ~= '' or #ARGV ~= 7 then return nil end
  local boot, lane, index = ARGV[1], 'lane:' .. ARGV[2], READY .. ARGV[7]
  local worker = redis.call('HMGET', WORKER .. boot, 'registered', 'lost', lane, 'role')
  local last = tonumber(string.match(worker[3] or '0', '^%d+'))
  if worker[1] and not worker[2] and (worker[4] or 'worker') == 'worker' and last < tonumber(ARGV[3]) and not redis.call('HGET', PAUSES, ARGV[7]) then
    local popped = redis.call('ZPOPMIN', index)
    local id = popped[1]
    if not id then return {'ok', now} end
    local text = redis.pcall('GET', TASK .. id)
    local state, version, fence, _, attempt, flags, moved, width = string.match(type(text) == 'string' and text or '', RECORD)
    if state == 'queued' and fence == '0' and flags == '-' and width == WIDTH + 1 then
      fence = string.format('%.0f', now_us)
      local line = first_line('running', version + 1, fence, boot, attempt + 1, '-', now)
      redis.call('SETRANGE', TASK .. id, 0, line)
      redis.call('ZADD', OWNED .. boot, now, id)
      redis.call('HSET', WORKER .. boot, lane, ARGV[3] .. ' ' .. id .. ' ' .. fence)
      if counting then
        count_wait(moved, text)
        write_outcomes()
      end
      if telling then
        publish('tasks', 1, 'queued running ' .. version + 1 .. ' ' .. attempt + 1 .. ' ' .. fence .. ' ' .. boot .. ' -\n' ..
          place_of(text) .. '\n' .. id)
      end
      return {'ok', now, {id, line .. string.sub(text, WIDTH + 1), false}}
    end
    redis.call('ZADD', index, popped[2], id)
  end
  return nil
end
