#!/bin/sh
# Back up a Redis or Valkey server from a container without Python: like `rl backup --every`, but with redis-cli.
#
#   REDIS_HOST, REDIS_PORT        the server to back up: a replica, if there is one (relier-redis-replica-1, 6379)
#   REDISCLI_AUTH                 its password; redis-cli reads this variable itself
#   REDIS_USER                    its user, if it has ACLs
#   BACKUP_DIR                    where backups go (/backups)
#   BACKUP_INTERVAL_SECONDS       seconds between two backups (3600); 0 makes one and exits
#   BACKUP_RETENTION              how many to keep (168: a week of hourly backups); 0 keeps all
#   BACKUP_S3_BUCKET              also copy each backup there, with the `aws` command
#   BACKUP_REDIS_CLI              the client (redis-cli, or valkey-cli)
#
# The server writes its snapshot (BGSAVE, at most 120 s until LASTSAVE changes), so that its own file is fresh too. The
# snapshot is then fetched as a replica fetches it (redis-cli --rdb), so this container needs no volume of the server.
# `rl restore` reads the files: relier-redis-TIMESTAMP.rdb.gz, and its SHA-256 in a file beside it.
set -eu

REDIS_HOST=${REDIS_HOST:-relier-redis-replica-1}
REDIS_PORT=${REDIS_PORT:-6379}
BACKUP_DIR=${BACKUP_DIR:-/backups}
BACKUP_INTERVAL_SECONDS=${BACKUP_INTERVAL_SECONDS:-3600}
BACKUP_RETENTION=${BACKUP_RETENTION:-168}
BACKUP_S3_BUCKET=${BACKUP_S3_BUCKET:-}
BACKUP_REDIS_CLI=${BACKUP_REDIS_CLI:-redis-cli}
SAVE_TIMEOUT=120

say() { printf '%s %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$*" >&2; }

# redis-cli exits with 0 for most error replies, so callers look at what it printed.
cli() {
    if [ -n "${REDIS_USER:-}" ]; then
        "$BACKUP_REDIS_CLI" -h "$REDIS_HOST" -p "$REDIS_PORT" --user "$REDIS_USER" "$@"
    else
        "$BACKUP_REDIS_CLI" -h "$REDIS_HOST" -p "$REDIS_PORT" "$@"
    fi
}

last_save() {
    saved=$(cli LASTSAVE) || return 1
    case $saved in
    '' | *[!0-9]*) say "LASTSAVE on $REDIS_HOST:$REDIS_PORT answered '$saved'; check the address, the user and the password"; return 1 ;;
    esac
    echo "$saved"
}

save() {
    before=$(last_save) || return 1
    sleep 1 # LASTSAVE counts whole seconds: two saves within one could not be distinguished
    answer=$(cli BGSAVE SCHEDULE) || return 1
    case $answer in
    *started* | *scheduled* | *"already in progress"*) ;;
    *) say "BGSAVE was refused: $answer; allow it to this user"; return 1 ;;
    esac
    waited=0
    while [ "$(last_save)" = "$before" ]; do
        if [ "$waited" -ge "$SAVE_TIMEOUT" ]; then
            say "BGSAVE did not finish within $SAVE_TIMEOUT s; see the server's log and disk"
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

is_complete() { # a snapshot begins with REDIS or VALKEY, and the ninth byte from its end is 255
    case $(head -c 5 "$1") in REDIS | VALKE) ;; *) return 1 ;; esac
    [ "$(tail -c 9 "$1" | head -c 1 | od -An -tx1 | tr -d ' \n')" = ff ]
}

prune() {
    [ "$BACKUP_RETENTION" -gt 0 ] || return 0
    count=$(find "$BACKUP_DIR" -maxdepth 1 -name 'relier-redis-*.rdb.gz' | wc -l)
    find "$BACKUP_DIR" -maxdepth 1 -name 'relier-redis-*.rdb.gz' | sort | while read -r old; do
        [ "$count" -gt "$BACKUP_RETENTION" ] || break
        rm -f "$old" "$old.sha256"
        count=$((count - 1))
    done
}

backup() {
    name=relier-redis-$(date -u +%Y%m%dT%H%M%SZ).rdb.gz
    part=$BACKUP_DIR/$name.part
    rm -f "$BACKUP_DIR"/relier-redis-*.part "$BACKUP_DIR"/relier-redis-*.rdb
    save || return 1
    cli --rdb "$part.rdb" >&2 || return 1
    if ! is_complete "$part.rdb"; then
        say "what $REDIS_HOST:$REDIS_PORT sent is not a complete snapshot; see its log"
        rm -f "$part.rdb"
        return 1
    fi
    gzip -c "$part.rdb" >"$part" || return 1
    rm -f "$part.rdb"
    digest=$(sha256sum "$part" | cut -d ' ' -f 1)
    printf '%s  %s\n' "$digest" "$name" >"$BACKUP_DIR/$name.sha256"
    mv "$part" "$BACKUP_DIR/$name"
    say "backup written: $BACKUP_DIR/$name"
    prune
    if [ -n "$BACKUP_S3_BUCKET" ]; then
        aws s3 cp --only-show-errors "$BACKUP_DIR/$name.sha256" "s3://$BACKUP_S3_BUCKET/$name.sha256" &&
            aws s3 cp --only-show-errors "$BACKUP_DIR/$name" "s3://$BACKUP_S3_BUCKET/$name" || return 1
    fi
}

umask 077 # a backup holds every payload
mkdir -p "$BACKUP_DIR"
if [ "$BACKUP_INTERVAL_SECONDS" -eq 0 ]; then
    backup
    exit
fi
trap 'exit 0' TERM INT
while :; do
    backup || say "backup failed; the next try is in $BACKUP_INTERVAL_SECONDS s"
    sleep "$BACKUP_INTERVAL_SECONDS" &
    wait $! # a signal ends `wait` at once, but not `sleep`
done
