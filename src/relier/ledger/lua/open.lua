-- Opens a namespace: writes this layout's version into an empty one, refuses another's.
-- ARGV: layout
-- returns: the layout found
redis.call('HDEL', META, 'full')
redis.call('HSETNX', META, 'layout', ARGV[1])
return redis.call('HGET', META, 'layout')
