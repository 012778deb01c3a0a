-- Enters the follow-ups of an ended task: n items from ARGV[from] on. `value` is this task's part for a follow-up that joins
-- several tasks (see join.lua).
-- use: item
local function follow(from, n, value)
  -- here: enter join
  for nth = 0, n - 1 do
    local item = from + ITEM * nth
    if string.sub(ARGV[item + 6], 1, 5) == 'join ' then
      join(item, nth, value)
    elseif not look(item) then
      enter(item, nth, false, true)
    end
  end
  line_up()
end
