-- Reads the steps of a record, as far as there is room: a join may have tens of thousands of parts. `room` holds the rows and
-- bytes that one call has left.
-- use: record
local function step_room() return {rows = 1000, bytes = 1048576} end

-- returns: {field, value, …}, and the next cursor (false at the end). A field may appear twice.
local function hash_page(key, cursor, room)
  local found = {}
  while room.rows > 0 and room.bytes > 0 do
    local page = ask('HSCAN', key, cursor, 'COUNT', 10)
    if not page then return found, false end
    for _, word in ipairs(page[2]) do
      found[#found + 1] = word
      room.bytes = room.bytes - #word
    end
    room.rows = room.rows - math.max(1, #page[2] / 2)
    cursor = page[1]
    if cursor == '0' then return found, false end
  end
  return found, cursor
end

local function step_page(id, cursor, room) return hash_page(STEPS .. id, cursor, room) end
