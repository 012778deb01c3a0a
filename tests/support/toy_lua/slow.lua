-- ARGV: about how many milliseconds to keep the server busy (TIME may stand still inside a script). Returns OK.
for _ = 1, tonumber(ARGV[1]) * 200000 do end
return redis.status_reply('OK')
