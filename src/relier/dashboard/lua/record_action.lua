-- Adds one entry to the log of operators' actions, and trims the log.
-- KEYS: the stream. ARGV: how many entries to keep, the entry as JSON
-- returns: the id of the entry
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])   -- even a full store accepts this write, and the next one
return redis.call('XADD', KEYS[1], '*', 'entry', ARGV[2])
