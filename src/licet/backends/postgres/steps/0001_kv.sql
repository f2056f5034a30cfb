-- Small values by key, in scopes that licet names; `bytes` is their size with the overhead of each, for the limit.
-- Scopes and keys are bytes, so that their order is the same everywhere. Times are seconds since 1970.
CREATE TABLE licet.kv_entries (
    scope bytea NOT NULL, key bytea NOT NULL, value text NOT NULL, expires double precision,
    PRIMARY KEY (scope, key)
);
CREATE INDEX kv_by_expiry ON licet.kv_entries (expires) WHERE expires IS NOT NULL;
CREATE TABLE licet.kv_sizes (scope bytea PRIMARY KEY, bytes bigint NOT NULL);
-- What a write answered, for as long as it may be sent again.
CREATE TABLE licet.kv_writes (id uuid PRIMARY KEY, answer bigint NOT NULL, written timestamptz NOT NULL DEFAULT now());
CREATE INDEX kv_by_writing ON licet.kv_writes (written);
GRANT SELECT, INSERT, UPDATE, DELETE ON licet.kv_entries, licet.kv_sizes, licet.kv_writes TO licet_runtime;

CREATE FUNCTION licet.kv_size(key bytea, value text) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = licet, pg_temp
AS $$ SELECT 64 + length(key)::bigint + octet_length(value) $$;

-- A number of a scope for the advisory lock under which it is written; two scopes may have the same.
CREATE FUNCTION licet.kv_lock(scope bytea) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = licet, pg_temp
AS $$ SELECT ('x' || substr(md5('licet kv' || encode(scope, 'hex')), 1, 16))::bit(64)::bigint $$;

-- Functions that read tables have three settings. `enable_seqscan`: a connection keeps the plan that it made while a table
-- was small, and would go on to read all of it. `jit`: where there is no other way than a scan, its plan then counts as
-- expensive, and compiling it would take longer than running it. `plan_cache_mode`: so would planning for each length of
-- an array.

-- Delete expired entries of a scope that is locked.
CREATE FUNCTION licet.kv_forget(at_scope bytea, moment double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    gone bigint;
BEGIN
    WITH deleted AS (
        DELETE FROM kv_entries WHERE scope = at_scope AND expires <= moment RETURNING kv_size(key, value) AS size
    ) SELECT sum(size) INTO gone FROM deleted;
    IF gone > 0 THEN
        UPDATE kv_sizes SET bytes = bytes - gone WHERE scope = at_scope;
    END IF;
END $$;

-- One write: `set` (a value), `delete` (no value) or `clear` (no key). Returns 0 if it was done, 1 if a key was deleted,
-- -1 if the session has ended, and for a value that does not fit the size that the scope would have.
-- The scope is locked first, so that each statement after that sees all writes before this one.
CREATE FUNCTION licet.kv_write(
    write uuid, at_scope bytea, at_key bytea, new_value text, ttl double precision, most bigint,
    moment double precision, ended bytea
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    time_now double precision := coalesce(moment, extract(epoch FROM clock_timestamp()));
    answer bigint;
    before bigint;
    after bigint;
    old bigint;
    other bytea;
BEGIN
    PERFORM pg_advisory_xact_lock(kv_lock(at_scope));
    SELECT w.answer INTO answer FROM kv_writes AS w WHERE w.id = write;
    IF FOUND THEN
        RETURN answer;
    END IF;
    PERFORM kv_forget(at_scope, time_now);
    SELECT bytes INTO before FROM kv_sizes WHERE scope = at_scope;
    before := coalesce(before, 0);
    SELECT kv_size(key, value) INTO old FROM kv_entries WHERE scope = at_scope AND key = at_key;
    answer := 0;
    IF at_key IS NULL THEN
        DELETE FROM kv_entries WHERE scope = at_scope;
        DELETE FROM kv_sizes WHERE scope = at_scope;
    ELSIF new_value IS NULL THEN
        IF old IS NOT NULL THEN
            DELETE FROM kv_entries WHERE scope = at_scope AND key = at_key;
            UPDATE kv_sizes SET bytes = before - old WHERE scope = at_scope;
            answer := 1;
        END IF;
    ELSIF EXISTS (SELECT FROM kv_entries WHERE scope = ended AND key = at_scope) THEN
        answer := -1;
    ELSE
        after := before + kv_size(at_key, new_value) - coalesce(old, 0);
        IF after > most AND after > before THEN
            answer := after;
        ELSE
            INSERT INTO kv_entries AS e (scope, key, value, expires) VALUES (at_scope, at_key, new_value, time_now + ttl)
                ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value, expires = excluded.expires;
            INSERT INTO kv_sizes (scope, bytes) VALUES (at_scope, after)
                ON CONFLICT (scope) DO UPDATE SET bytes = excluded.bytes;
        END IF;
    END IF;
    INSERT INTO kv_writes (id, answer) VALUES (write, answer);
    -- A few of what nobody asks for any more. Whoever is busy is left alone: to wait here could be a deadlock.
    DELETE FROM kv_writes WHERE id IN (
        SELECT w.id FROM kv_writes AS w WHERE w.written < now() - interval '1 day' LIMIT 4 FOR UPDATE SKIP LOCKED
    );
    FOR other IN
        SELECT e.scope FROM kv_entries AS e WHERE e.expires <= time_now AND e.scope <> at_scope LIMIT 4
    LOOP
        IF pg_try_advisory_xact_lock(kv_lock(other)) THEN
            PERFORM kv_forget(other, time_now);
        END IF;
    END LOOP;
    RETURN answer;
END $$;
REVOKE ALL ON FUNCTION licet.kv_size, licet.kv_lock, licet.kv_forget, licet.kv_write FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.kv_size, licet.kv_lock, licet.kv_forget, licet.kv_write TO licet_runtime;
