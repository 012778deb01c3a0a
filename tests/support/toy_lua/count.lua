-- KEYS[1]: counter. ARGV: nonce. Counts each nonce once and remembers its answer, so it is safe to repeat.
-- Returns the count at that nonce.
local seen = redis.call('HGET', KEYS[1] .. ':nonces', ARGV[1])
if not seen then
  seen = redis.call('INCR', KEYS[1])
  redis.call('HSET', KEYS[1] .. ':nonces', ARGV[1], seen)
end
return tonumber(seen)
