-- Parses the options of the submission into the record table, on demand. An option left at its default is nil.
local SPEC = '\n(%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)\n([^\n]+)\n([^\n]+)\n'
local function with_spec(r)
  if r.at then return r end
  local options = {string.match(r.text, SPEC)}
  r.at, r.priority, r.queue, r.name = options[1], options[4], options[12], options[13]
  r.expires, r.held, r.result_ttl = tonumber(options[2]), tonumber(options[3]), tonumber(options[5])
  r.dead_ttl, r.key_ttl, r.tomb_ttl = tonumber(options[6]), tonumber(options[7]), tonumber(options[8])
  r.max_resurrections, r.on_lost = tonumber(options[9]), options[10] ~= '-' and options[10] or nil
  return r
end
