-- Resumes a paused queue.
-- ARGV: queue, version seen
-- returns: {'ok' | 'repeat' | 'conflict', paused ('1' | '0'), version}
-- use: tell close
redis.call('HDEL', PAUSES, '')
local now_paused, version = string.match(redis.call('HGET', PAUSES, ARGV[1]) or '0 0', '^(%d) (%d+)$')
if now_paused == '0' then return {'repeat', '0', version} end
if version ~= ARGV[2] then return {'conflict', now_paused, version} end
version = string.format('%.0f', version + 1)
redis.call('HSET', PAUSES, ARGV[1], '0 ' .. version)
ring(ARGV[1])
if telling then news('cluster', 'resumed', ARGV[1], '', '', '', version, '') end
close()
return {'ok', '0', version}
