-- ARGV: any text. Returns it.
return ARGV[1]
