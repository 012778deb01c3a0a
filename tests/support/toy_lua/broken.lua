-- Always answers with an error.
return redis.error_reply('BROKEN on purpose')
