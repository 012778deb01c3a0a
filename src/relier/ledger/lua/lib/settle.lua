-- Implements the common part of retry, release, bury and forfeit. ARGV: boot (worker id), n, then
-- n runs of `width` values that begin with id, fence.
-- `act(id, r, a)` makes the move for the run at ARGV[a] and returns the task's new state. The answer has per task:
-- {verdict, state, fence}, the last two from the current record.
-- use: record close notes lease
local function settle(move, width, act)
  local answers = {}
  for i = 1, tonumber(ARGV[2]) do
    local a = 3 + width * (i - 1)
    local id, fence = ARGV[a], ARGV[a + 1]
    local r = read(id)
    local said = verdict(id, r, move, fence, ARGV[1])
    if said == 'ok' then
      leave(id, r)
      note(id, r, 'settled', move .. ':' .. fence)
      answers[i] = {said, act(id, r, a), fence}
    else
      if not r.state then let_go(id, r, ARGV[1]) end
      answers[i] = {said, r.state or '', r.fence or '0'}
    end
  end
  close()
  return answers
end
