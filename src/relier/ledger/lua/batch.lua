-- Reads a batch.
-- ARGV: id
-- returns: {field, value, …} (see lib/batch.lua), empty if there is none
-- use: record
return ask('HGETALL', BATCH .. ARGV[1]) or {}
