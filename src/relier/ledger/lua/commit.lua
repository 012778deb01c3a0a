-- Ends tasks as done, each with its result and its follow-up tasks. Only the owner may do so, under the current fence.
-- ARGV: durable ('1' or ''), boot (worker id), n, then per task: id, fence, has result ('1' or ''), result,
--       n follow-ups, then per follow-up: see lib/item.lua
-- returns: per task 'ok', or {verdict, state, fence}: repeat | stale | missing | corrupt, and the current values of the record
-- A follow-up that already exists is left alone; one that joins gets the result as its part (see lib/join.lua). Admission
-- limits do not apply to follow-ups.
-- use: tell outcomes commit_plain
local boot, n = ARGV[2], tonumber(ARGV[3])
local answers, a = commit_plain(boot, n, 4)
if #answers == n then
  if counting then write_outcomes() end
  if telling then publish_all() end
  return answers
end

-- here: item record close lease finish follow
local idle = #answers == 0
for nth = #answers + 1, n do
  local id, fence, follow_ups = ARGV[a], ARGV[a + 1], ARGV[a + 4]
  local r = read(id)
  local said = verdict(id, r, 'commit', fence, boot)
  if said == 'ok' then
    leave(id, r)
    finish(id, r, 'done', ARGV[a + 2] == '1' and ARGV[a + 3] or nil)
    if follow_ups ~= '0' then follow(a + 5, tonumber(follow_ups), ARGV[a + 3]) end
    idle = false
    answers[nth] = 'ok'
  else
    if not r.state then let_go(id, r, boot) end
    answers[nth] = {said, r.state or '', r.fence or '0'}
  end
  a = a + 5 + ITEM * follow_ups
end
if idle and ARGV[1] == '1' then
  -- here: touch
  touch()
end
close()
return answers
