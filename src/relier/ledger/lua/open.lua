-- Opens a namespace: writes this layout's version and a birth mark into an empty one, and refuses any other layout.
-- ARGV: layout, a random word for a new mark, the mark that the caller remembers ('' none)
-- returns: {the layout found, the mark found}
-- The mark exists as long as the data. A caller that remembers a different mark used the namespace before the store was emptied
-- or replaced. The first such caller leaves a note for `rl doctor`.
-- use: time
redis.call('HDEL', META, 'full')
redis.call('HSETNX', META, 'layout', ARGV[1])
local layout = redis.call('HGET', META, 'layout')
if layout ~= ARGV[1] then return {layout, ''} end
local at = string.format('%.0f', now)
redis.call('HSETNX', META, 'born', ARGV[2] .. '-' .. at)   -- contains the time, so a repeated call cannot give an emptied store its old mark
local born = redis.call('HGET', META, 'born')
if ARGV[3] ~= '' and ARGV[3] ~= born and redis.call('HSETNX', META, 'emptied', at .. ' ' .. ARGV[3]) == 1 then
  redis.call('HINCRBY', COUNTS, 'emptied', 1)
end
return {layout, born}
