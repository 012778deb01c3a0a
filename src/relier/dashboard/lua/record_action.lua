-- Adds one entry to the record of what operators did, and trims the record.
-- KEYS: the stream. ARGV: how many entries to keep, the entry as JSON
-- returns: the id of the entry
redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[1])   -- even a full store accepts this write, and then the one after it
return redis.call('XADD', KEYS[1], '*', 'entry', ARGV[2])
