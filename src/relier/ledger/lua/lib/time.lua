-- Reads the store's time, once: two calls inside one script may differ.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
