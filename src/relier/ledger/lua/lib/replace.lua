-- Continues the record as another task: `tail` has the new priority, options, queue, name and payload (see item.lua). Values
-- fixed on entry stay: at, expires, held (the end gives back as many bytes as were charged) and key_ttl. The caller saves the
-- record afterwards, because the flag may be new.
-- use: layout record notes
local DEFAULT = '^\n%d+ %- %- %-?%d+ %- %- %- %- %- %- %-\n'
local function replace(id, r, tail)
  local entered, key_ttl = string.match(r.text, '(\n%d+ %S+ %S+ )%S+ %S+ %S+ (%S+)', WIDTH + 1)
  local before, after = string.match(tail, '^(%S+ %S+ %S+ )%S+( .*)$')
  local rest = entered .. before .. key_ttl .. after
  if string.find(rest, DEFAULT) then r.flags = string.gsub(r.flags, 'o', '') else mark(r, 'o') end
  r.text = core(r) .. rest
  r.body = parse(r.text).body
  redis.call('SET', TASK .. id, r.text)
end
