-- The record: one string, because that is what a script reads and writes fastest and the server keeps smallest.
--   line 1  state version fence owner attempt flags moved      what moves change; padded, so that it is changed in place
--   line 2  at expires held priority result_ttl dead_ttl key_ttl tomb_ttl max_resurrections on_lost durability
--                                                               what the submission said; '-' = the default
--   line 3  queue      line 4  name      then the payload; for a done task the result, if it has one
-- flags: a runs alone, c asked to cancel, h has a history, k has a checkpoint, m has more (a hash with the rarely needed:
-- key, nonce, reason, settled, retries, deaths, scares, since, checkpoint, revision, replayed), o has options other than
-- the default in line 2, s has steps, y has a result; '-' = none. moved: when the state last changed (TIME, ms; 0
-- = never).
-- A tombstone stands where the record of an id stood that must not run again: `ended <until> <state>`. It is no record.
-- A key that does not read as this is `corrupt` and has no state, so that no script stumbles over it halfway through its
-- writes: 'text' for a broken string, 'type' for another type of key.
-- use: time
local WIDTH = 96    -- of line 1 without its end: state 9, version 10, fence 16, owner 24, attempt 6, flags 8, moved 13
local STATES = ' scheduled queued running done dead cancelled '
local RECORD = '^(%l+) (%d+) (%d+) (%S+) (%d+) (%S+) (%d+) *()\n' ..
  '%d+ %S+ %S+ %-?%d+ %S+ %S+ %S+ %S+ %S+ %S+ %S+\n[^\n]+\n[^\n]+\n()'

local TOMBSTONE = '^ended (%d+) (%l+)$'

-- Whole numbers as text: tostring and `..` keep 14 digits, a fence has 16.
local function digits(number) return string.format('%.0f', number) end

local function parse(text)
  local state, version, fence, owner, attempt, flags, moved, width, body = string.match(text, RECORD)
  if width ~= WIDTH + 1 or not string.find(STATES, ' ' .. state .. ' ', 1, true) then
    local till, last = string.match(text, TOMBSTONE)
    return {corrupt = text ~= '' and not till and 'text' or nil, till = tonumber(till), last = last}
  end
  return {state = state, version = version, fence = fence, owner = owner, attempt = attempt, flags = flags, moved = moved,
    text = text, body = body}
end

-- A read that a key of another type does not break: false where there is none.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then return false end
  return answer
end

-- The record without its payload: all four lines are within the first 1,400 bytes.
local function read(id)
  local text = redis.pcall('GETRANGE', TASK .. id, 0, 1400)
  if type(text) == 'table' then return {corrupt = 'type'} end
  return parse(text)
end

local function has(r, flag) return r.flags ~= '-' and string.find(r.flags, flag, 1, true) ~= nil end

-- Line 1, padded.
local function core(r)
  return string.format('%-96s', r.state .. ' ' .. r.version .. ' ' .. r.fence .. ' ' .. r.owner .. ' ' .. r.attempt .. ' ' ..
    r.flags .. ' ' .. r.moved)
end

-- All four lines.
local function head(r) return core(r) .. string.sub(r.text, WIDTH + 1, r.body - 1) end

-- Counts a change of state.
local function step_version(r) r.version, r.moved = r.version + 1, now end
