-- Sets or renews the mark of a reader of events. Processes that write events only for readers (RELIER_EVENTS=watched) look for it.
-- ARGV: how long the mark is valid (ms)
-- returns: 1 if the mark existed, 0 if not, in which case events may not have been written until now
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and then those after it
local was = redis.call('EXISTS', WATCHED)
redis.call('SET', WATCHED, '1', 'PX', ARGV[1])
return was
