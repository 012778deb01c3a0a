-- Pauses claims from a queue. Running tasks continue; pushed tasks wait.
-- ARGV: queue, version seen ('0' = never paused)
-- returns: {'ok' | 'repeat' | 'conflict', paused ('1' | '0'), version}
-- use: tell
redis.call('HDEL', PAUSES, '')
local now_paused, version = string.match(redis.call('HGET', PAUSES, ARGV[1]) or '0 0', '^(%d) (%d+)$')
if now_paused == '1' then return {'repeat', '1', version} end
if version ~= ARGV[2] then return {'conflict', now_paused, version} end
version = string.format('%.0f', version + 1)
redis.call('HSET', PAUSES, ARGV[1], '1 ' .. version)
redis.call('SADD', QUEUES, ARGV[1])
if telling then
  news('cluster', 'paused', ARGV[1], '', '', '', version, '')
  publish_all()
end
return {'ok', '1', version}
