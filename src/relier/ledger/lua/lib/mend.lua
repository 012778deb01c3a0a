-- Counts repairs: for the answer of this call, and in total (`repaired_<kind>` in COUNTS).
-- use: close
local repaired = {all = 0}

local function fixed(kind)
  repaired.all = repaired.all + 1
  count('repaired_' .. kind)
  for i = 1, #repaired, 2 do
    if repaired[i] == kind then
      repaired[i + 1] = repaired[i + 1] + 1
      return
    end
  end
  repaired[#repaired + 1] = kind
  repaired[#repaired + 1] = 1
end
