-- Changes a record: its flags, its line 1 in place, and the rarely needed fields stored alongside it.
-- use: record tell
local function mark(r, flag)
  if r.flags == '-' then r.flags = flag
  elseif not has(r, flag) then r.flags = r.flags .. flag end
end

local function unmark(r, flag)
  r.flags = string.gsub(r.flags, flag, '')
  if r.flags == '' then r.flags = '-' end
end

local function save(id, r)
  step_version(r)
  redis.call('SETRANGE', TASK .. id, 0, core(r))
  if telling then tell_record(id, r) end
end

-- Writes a side key of a record. A key of the wrong type, which something else wrote there, is removed first, so that no move
-- stops halfway.
local function beside(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE', 1, true) then redis.call('DEL', key) end
    answer = redis.call(command, key, ...)
  end
  return answer
end

-- Sets fields. The caller saves the record afterwards, because the flag may be new.
local function note(id, r, ...)
  mark(r, 'm')
  beside('HSET', MORE .. id, ...)
end

local function noted(id, r, field) return has(r, 'm') and ask('HGET', MORE .. id, field) end
