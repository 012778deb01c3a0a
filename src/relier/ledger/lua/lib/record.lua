-- Reads and writes a record. layout.lua describes its layout.
-- use: time layout
-- Formats whole numbers: tostring and `..` keep only 14 digits, and a fence has 16.
local function digits(number) return string.format('%.0f', number) end

local function parse(text)
  local state, version, fence, owner, attempt, flags, moved, width, body = string.match(text, RECORD)
  if width ~= WIDTH + 1 or not string.find(STATES, ' ' .. state .. ' ', 1, true) then
    local till, last = string.match(text, TOMBSTONE)
    return {corrupt = text ~= '' and not till and 'text' or nil, till = tonumber(till), last = last}
  end
  return {state = state, version = version, fence = fence, owner = owner, attempt = attempt, flags = flags, moved = moved,
    text = text, body = body, was = state, worker = owner}
end

-- Reads a key without failing if its type is wrong. Returns false if there is no value.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then return false end
  return answer
end

-- Reads the record without its payload.
local function read(id)
  local text = redis.pcall('GETRANGE', TASK .. id, 0, HEAD_BYTES)
  if type(text) == 'table' then return {corrupt = 'type'} end
  return parse(text)
end

local function has(r, flag) return r.flags ~= '-' and string.find(r.flags, flag, 1, true) ~= nil end

local function core(r) return first_line(r.state, r.version, r.fence, r.owner, r.attempt, r.flags, r.moved) end

-- Returns all four lines, line 1 as it is now.
local function head(r) return core(r) .. string.sub(r.text, WIDTH + 1, r.body - 1) end

-- Counts a change of state, and sets its time.
local function step_version(r) r.version, r.moved = r.version + 1, now end
