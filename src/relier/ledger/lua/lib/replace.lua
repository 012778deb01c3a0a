-- The record goes on as another task: `tail` has its priority, options, queue, name and payload (see item.lua). What was
-- settled when it entered stays: at, expires, held (what is given back at the end is what was taken) and key_ttl. The
-- caller saves the record after it: the flag may be new.
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
