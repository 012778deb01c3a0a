-- Ends an unreadable record as dead, with its text kept as the payload, so that an operator can inspect it. If there is no record to
-- end, the id is only counted. The caller has already removed it from its index. The bytes it held are given back if its second
-- line can be read. Its idempotency key is freed in any case.
-- use: time layout record close finish_why log
local HELD_AND_KEY = '^[^\n]*\n%d+ %S+ (%S+) %-?%d+ %S+ %S+ (%S+) %S+ %S+ %S+ %S+\n'

local function bury_corrupt(id, r)
  if r.corrupt ~= 'text' then
    count('strays')
    if ask('HEXISTS', MORE .. id, 'batch') == 1 then part(id, 'dead') end
    return
  end
  local function number(word) return word and #word <= 14 and string.match(word, '^%d+$') end
  local text = redis.call('GET', TASK .. id)
  local held, key_ttl = string.match(text, HELD_AND_KEY)
  held, key_ttl = number(held) or '-', number(key_ttl) or ask('HEXISTS', MORE .. id, 'key') == 1 and '0' or '-'
  local flags = (held ~= '-' or key_ttl ~= '-') and 'o' or ''
  for flag, key in pairs({h = HISTORY .. id, m = MORE .. id, k = CHECKPOINT .. id, s = STEPS .. id}) do
    if redis.call('EXISTS', key) == 1 then flags = flags .. flag end
  end
  if ask('HEXISTS', MORE .. id, 'batch') == 1 then flags = flags .. 'b' end
  text = first_line('dead', 0, 0, '-', 0, flags == '' and '-' or flags, digits(now)) ..
    string.format('\n%.0f - %s 0 - - %s - - - -\n?\n?\n', now_us, held, key_ttl) .. text
  redis.call('SET', TASK .. id, text)
  redis.call('ZREM', EXPIRING, id)
  local rest = parse(text)
  rest.was = 'corrupt'
  log(id, rest, 'corrupt', 'corrupt_record')
  finish_dead(id, rest, 'corrupt_record')
end
