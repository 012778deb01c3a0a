-- Lists members of a batch by stage and place.
-- ARGV: batch, first score, end (exclusive), how many to skip, max members
-- returns: {member, score, …}   member: a task id, or `@<id>` of an inner batch
-- use: record
return ask('ZRANGEBYSCORE', MEMBERS .. ARGV[1], ARGV[2], '(' .. ARGV[3], 'WITHSCORES', 'LIMIT', ARGV[4], ARGV[5]) or {}
