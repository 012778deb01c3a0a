-- Reads how tasks ended, and how long they waited and ran: the hashes of the last minutes or hours, oldest first.
-- ARGV: 'm' (minutes) or 'h' (hours), how many before the present one, cursor ('' = begin)
-- returns: {TIME (ms), next cursor ('' = end), {minute or hour (since 1970), {field, count, …}}, …}
--   fields: see lib/outcomes.lua
-- use: time record
local last = math.floor(now / (ARGV[1] == 'm' and MINUTE or HOUR))
local answer, room = {now, ''}, 3000
for period = math.max(tonumber(ARGV[3]) or 0, last - ARGV[2]), last do
  if room <= 0 then
    answer[2] = digits(period)
    break
  end
  local rows = ask('HGETALL', OUTCOMES .. ARGV[1] .. period) or {}
  if #rows > 0 then answer[#answer + 1] = {period, rows} end
  room = room - #rows / 2
end
return answer
