-- One plain task without follow-ups, in one straight line. Where its record has any flag, or is not this owner's under
-- this fence, it leaves the matter to the rest of the script.
-- use: layout
if ARGV[3] == '1' and ARGV[8] == '0' then
  local boot, id, value = ARGV[2], ARGV[4], ARGV[7]
  local text = redis.pcall('GETRANGE', TASK .. id, 0, 1400)
  local state, version, fence, owner, attempt, flags, _, width, body =
    string.match(type(text) == 'string' and text or '', RECORD)
  if state == 'running' and fence == ARGV[5] and owner == boot and flags == '-' and width == WIDTH + 1 then
    local line = string.format('%-96s', 'done ' .. version + 1 .. ' ' .. fence .. ' ' .. boot .. ' ' .. attempt ..
      (ARGV[6] == '1' and ' y ' or ' - ') .. now)
    redis.call('ZREM', OWNED .. boot, id)
    redis.call('SET', TASK .. id, line .. string.sub(text, WIDTH + 1, body - 1) .. value, 'PX', RESULT_TTL + BACKSTOP)
    redis.call('ZADD', ENDED .. 'done', now + RESULT_TTL, id)
    redis.call('HINCRBY', COUNTS, 'done', 1)
    return {'ok'}
  end
end
