-- The store's time, asked once per call: two calls of TIME inside one script may differ.
local time, now_us, now
-- each: time = redis.call('TIME')
-- each: now_us = time[1] * 1000000 + time[2]
-- each: now = math.floor(now_us / 1000)
