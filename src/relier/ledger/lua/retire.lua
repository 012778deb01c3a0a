-- Removes a node permanently, if it no longer owns any task.
-- ARGV: boot (node id)
-- returns: {'ok'} | {'busy', owned tasks} | {'gone'}
-- use: tell members
local lease = redis.call('ZSCORE', BOOTS, ARGV[1])
if not lease or lease == '0' then return {'gone'} end
local held = redis.call('ZCARD', OWNED .. ARGV[1])
if held > 0 then return {'busy', held} end
remove_boot(ARGV[1])
if telling then
  news('cluster', 'retired', ARGV[1], '', '', '', '', '')
  publish_all()
end
return {'ok'}
