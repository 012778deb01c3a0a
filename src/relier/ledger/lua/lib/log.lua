-- Adds one line to a task's history: the move, other than a commit, that ended an attempt, and when the attempt began (`moved`). All
-- values are strings, so that nothing is rounded. The caller saves the record afterwards, because the flag may be new.
-- use: time record notes
local function log(id, r, move, detail)
  beside('RPUSH', HISTORY .. id, cjson.encode({move, digits(now), tostring(r.attempt), r.owner, r.fence, detail, r.moved}))
  if has(r, 'h') then redis.call('LTRIM', HISTORY .. id, -HISTORY_KEPT, -1) end
  mark(r, 'h')
end
