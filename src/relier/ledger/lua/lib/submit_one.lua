-- One plain task, in one straight line: no guard, no key, no option. Most submits are this, and what the others need is
-- not even set up for it. Where it is not so, or the id is here already, it leaves the matter to the rest of the script.
-- use: layout
local NEW = 'queued 1 0 - 0 - 0                                                                              \n'
if ARGV[2] == '0' and ARGV[3] == '0' and ARGV[5] == '0' and ARGV[6] == '1' and ARGV[10] == '0' and ARGV[11] == '0' and
  ARGV[12] == '' and ARGV[14] == '' and ARGV[15] == '' then
  local id, queue = ARGV[7], ARGV[8]
  local index, at = READY .. queue, string.format('%.0f', now_us + 1)
  local written = redis.pcall('SET', TASK .. id, NEW .. at .. ' - - ' .. ARGV[16], 'NX')
  if written and not written.err then
    redis.call('ZADD', index, ARGV[9] == '0' and at or at - ARGV[9] * 60000000, id)
    redis.call('HINCRBY', COUNTS, 'submitted', 1)
    if redis.call('ZCARD', index) == 1 and redis.call('LLEN', BELL .. queue) == 0 then
      redis.call('RPUSH', BELL .. queue, '1')
      redis.call('SADD', QUEUES, queue)
    end
    return {'ok', 'queued'}
  end
end
