-- What was decided about the whole state: freezes, their ends, the keys of operators. Rows are signed by nodes, which
-- read `body` alone; the other columns are for `licet.frozen`. Whoever changes them can stop calls, and start none:
-- each node compares with what it has verified.
CREATE TABLE licet.state_acts (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    kind text NOT NULL CHECK (kind IN ('freeze', 'thaw', 'operators')),
    agent text, tool text, why text NOT NULL DEFAULT '',
    body bytea NOT NULL, node text NOT NULL, signature bytea NOT NULL
);
CREATE TABLE licet.thawed (id text PRIMARY KEY);

-- An opening of a call holds this lock shared. Whoever has committed a freeze takes it alone for a moment, and so waits
-- for what is under way; every opening after that reads the freeze.
CREATE FUNCTION licet.freeze_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = licet, pg_temp AS $$ SELECT 465624563717::bigint $$;

-- Why calls of a tool by an agent, or by a delegate of it, are stopped; an empty text if they are not.
CREATE FUNCTION licet.frozen(agent text, tool text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found text;
BEGIN
    SELECT CASE one.why WHEN '' THEN 'frozen' ELSE one.why END INTO found
    FROM state_acts AS one
    WHERE one.kind = 'freeze'
        AND (one.agent IS NULL OR one.agent = frozen.agent OR starts_with(frozen.agent, one.agent || '>'))
        AND (one.tool IS NULL OR one.tool = frozen.tool)
        AND NOT EXISTS (SELECT 1 FROM thawed WHERE thawed.id = one.id)
    ORDER BY one.number LIMIT 1;
    RETURN coalesce(found, '');
END $$;

-- Keep an act; a second time it changes nothing. No lock is taken, which somebody could hold so that nothing is frozen.
CREATE FUNCTION licet.add_state_act(
    id text, kind text, agent text, tool text, why text, ends text[], body bytea, node text, signature bytea
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO state_acts (id, kind, agent, tool, why, body, node, signature)
    VALUES (add_state_act.id, add_state_act.kind, add_state_act.agent, add_state_act.tool, add_state_act.why,
        add_state_act.body, add_state_act.node, add_state_act.signature)
    ON CONFLICT DO NOTHING;
    INSERT INTO thawed (id) SELECT DISTINCT ended.id FROM unnest(ends) AS ended(id) ON CONFLICT DO NOTHING;
    PERFORM pg_notify('licet_freezes', '');
END $$;

GRANT SELECT, INSERT ON licet.state_acts, licet.thawed TO licet_runtime;
REVOKE ALL ON FUNCTION licet.freeze_lock, licet.frozen, licet.add_state_act FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.freeze_lock, licet.frozen, licet.add_state_act TO licet_runtime;
