-- A record that cannot be read ends as dead, its text kept as the payload, so that a person sees it; where there is no
-- record to end, the id is only counted. The caller has taken it out of the index it was in.
-- use: log finish_why
local function bury_corrupt(id, r)
  if r.corrupt ~= 'text' then
    count('strays')
    return
  end
  local head_of = string.format('dead 0 0 - 0 - %.0f%s\n%.0f - - 0 - - - - - - -\n?\n?\n', now, string.rep(' ', 68), now_us)
  local text = head_of .. redis.call('GET', TASK .. id)
  redis.call('SET', TASK .. id, text)
  local rest = parse(text)
  log(id, rest, 'corrupt', 'corrupt_record')
  finish_dead(id, rest, 'corrupt_record')
end
