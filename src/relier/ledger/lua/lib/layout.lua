-- Defines the record: one string, because a script reads and writes that fastest and the server stores it in the least memory.
--   line 1  state version fence owner attempt flags moved      what moves change; padded, so that it can change in place
--   line 2  at expires held priority result_ttl dead_ttl key_ttl tomb_ttl max_resurrections on_lost durability
--                                                               what the submission said; '-' = the default
--   line 3  queue      line 4  name      then the payload; for a done task the result, if it has one
-- flags ('-' = none):
--   a runs alone          c asked to cancel      h has a history        k has a checkpoint      y has a result
--   l is limited at run time (lanes.lua)
--   m has more: a hash of rarely needed fields: key, nonce, reason, settled, retries, deaths, scares, since, locked_since,
--     checkpoint, progress, revision, replayed, limits, batch
--   o line 2 has options other than the default
--   p keeps its place while it is scheduled
--   s has steps: its own, or parts that other tasks stored (join.lua)
--   b member of a batch: the field `batch` of its hash says of which (batch.lua)
-- moved: when the state last changed (TIME, ms; 0 = never).
-- A tombstone replaces the record of an id that must not run again: `ended <until> <state>`. A tombstone is not a record.
-- A key in any other form is `corrupt` and has no state, so that no script fails on it halfway through its writes: 'text' for a
-- broken string, 'type' for a key of the wrong type.
local WIDTH = 96    -- of line 1 without its newline: state 9, version 10, fence 16, owner 24, attempt 6, flags 8, moved 13
local STATES = ' scheduled queued running done dead cancelled '
local RECORD = '^(%l+) (%d+) (%d+) (%S+) (%d+) (%S+) (%d+) *()\n' ..
  '%d+ %S+ %S+ %-?%d+ %S+ %S+ %S+ %S+ %S+ %S+ %S+\n[^\n]+\n[^\n]+\n()'

local TOMBSTONE = '^ended (%d+) (%l+)$'

-- Returns line 1, padded.
local function first_line(state, version, fence, owner, attempt, flags, moved)
  return string.format('%-96s', state .. ' ' .. version .. ' ' .. fence .. ' ' .. owner .. ' ' .. attempt .. ' ' .. flags .. ' ' .. moved)
end
