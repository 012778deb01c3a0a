-- Finds the index that a task belongs in, and what is stored under its id.
-- use: record spec
local function limit_keys(id, r)
  local keys = {}
  if not has(r, 'l') then return keys end
  for key in string.gmatch(ask('HGET', MORE .. id, 'limits') or '', '%S+ (%S+) %d+ %d+ %d+') do keys[#keys + 1] = key end
  return keys
end

-- A task behind limits waits in its lane, unless it is the lane's head.
local function waits_at(id, r)
  local queue = with_spec(r).queue
  if not has(r, 'l') then return READY .. queue end
  local lane = LANE .. table.concat(limit_keys(id, r), ',') .. ' ' .. queue
  return ask('ZSCORE', lane, id) and lane or READY .. queue
end

local function home_of(id, r)
  if r.state == 'scheduled' then return DUE end
  if r.state == 'queued' then return waits_at(id, r) end
  if r.state == 'running' then return OWNED .. r.owner end
  return r.state and ENDED .. r.state
end

local function what(r) return r.state or r.corrupt and 'corrupt' or r.till and 'tombstone' or '' end
