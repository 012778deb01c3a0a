-- Changing a record: its flags, its line 1 in place, and the rarely needed fields beside it.
-- use: record
local function mark(r, flag)
  if r.flags == '-' then r.flags = flag
  elseif not has(r, flag) then r.flags = r.flags .. flag end
end

local function save(id, r)
  step_version(r)
  redis.call('SETRANGE', TASK .. id, 0, core(r))
end

-- Sets fields. The caller saves the record after it: the flag may be new.
local function note(id, r, ...)
  mark(r, 'm')
  redis.call('HSET', MORE .. id, ...)
end

local function noted(id, r, field) return has(r, 'm') and redis.call('HGET', MORE .. id, field) end
