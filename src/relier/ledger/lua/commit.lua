-- Ends attempts as done, each with its result and the tasks that follow from it. Only the owner under its fence can.
-- ARGV: durable ('1' or ''), boot, n, then per task: id, fence, has result ('1' or ''), result,
--       n follow-ups, then per follow-up: see lib/enter.lua
-- returns: per task 'ok', or {verdict, state, fence}: repeat | stale | missing | corrupt, and what the record says now
-- A follow-up that is here already is left alone; follow-ups pass no admission.
-- use: commit_one finish lease follow
local boot, a, answers, idle = ARGV[2], 4, {}, true

for i = 1, tonumber(ARGV[3]) do
  local id, fence, n = ARGV[a], ARGV[a + 1], ARGV[a + 4]
  local r = read(id)
  local said = verdict(id, r, 'commit', fence, boot)
  if said == 'ok' then
    leave(id, r)
    finish(id, r, 'done', ARGV[a + 2] == '1' and ARGV[a + 3] or nil)
    if n ~= '0' then follow(a + 5, tonumber(n)) end
    idle = false
    answers[i] = 'ok'
  else
    if not r.state then let_go(id, r, boot) end
    answers[i] = {said, r.state or '', r.fence or '0'}
  end
  a = a + 5 + 10 * n
end
if idle and ARGV[1] == '1' then
  -- here: touch
  touch()
end
close()
return answers
