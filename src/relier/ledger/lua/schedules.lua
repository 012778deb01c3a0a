-- Reads schedules: one by its name, or a page of a group.
-- ARGV: name ('' = a page), group, cursor ('0' = begin), max firings of each
-- returns: {TIME (ms), next cursor ('' the end),
--           {name, version, state, group, origin, definition, last id, next intended time ('' none), fired (ms), {firing, …}}, …}
-- A record that cannot be read is returned as {name}. A name may appear twice.
-- use: time record schedule_record
local name = ARGV[1]
local names, cursor = {name}, ''
if name == '' then
  local page = redis.call('ZSCAN', SCHEDULES .. ARGV[2], ARGV[3], 'COUNT', 50)
  names, cursor = {}, page[1] == '0' and '' or page[1]
  for i = 1, #page[2], 2 do names[#names + 1] = page[2][i] end
end
local answer = {digits(now), cursor}
for _, each in ipairs(names) do
  local s = read_schedule(each)
  if s then
    local fires = ask('LRANGE', FIRES .. each, 0, ARGV[4] - 1) or {}
    answer[#answer + 1] = {each, s.version, s.state, s.group, s.origin, s.definition, s.last, s.next, digits(s.fired), fires}
  elseif name == '' or redis.call('EXISTS', SCHEDULE .. each) == 1 then
    answer[#answer + 1] = {each}
  end
end
return answer
