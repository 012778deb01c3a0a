-- The tasks that follow from an end: n items from ARGV[from] on. `value` is what this end has to say to a task that
-- joins several (see join.lua).
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
