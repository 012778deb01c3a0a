-- KEYS[1]: where. ARGV: value. Returns OK.
return redis.call('SET', KEYS[1], ARGV[1])
