-- Which index a task belongs into, and what stands under its id.
-- use: spec
local function home_of(r)
  if r.state == 'scheduled' then return DUE end
  if r.state == 'queued' then return READY .. with_spec(r).queue end
  if r.state == 'running' then return OWNED .. r.owner end
  return r.state and ENDED .. r.state
end

local function what(r) return r.state or r.corrupt and 'corrupt' or r.till and 'tombstone' or '' end
