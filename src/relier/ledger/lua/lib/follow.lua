-- The tasks that follow from a commit: n items from ARGV[from] on.
-- use: record close
local function follow(from, n)
  -- here: enter
  for nth = 0, n - 1 do
    local item = from + ITEM * nth
    if not look(item) then enter(item, nth, false, true) end
  end
  line_up()
end
