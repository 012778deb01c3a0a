-- Sets or renews the mark of a reader of events. Processes that write events only for readers (RELIER_EVENTS=watched) look for it.
-- ARGV: how long the mark is valid (ms)
-- returns: 1 if the mark existed, 0 if it did not: then events may be missing until now
redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
local was = redis.call('EXISTS', WATCHED)
redis.call('SET', WATCHED, '1', 'PX', ARGV[1])
return was
