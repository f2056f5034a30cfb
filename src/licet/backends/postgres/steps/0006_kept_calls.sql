-- What became of calls with an id, for those that repeat them: `body` says which call it is and is signed by a node,
-- `data` is what is kept of it. While a call runs, its node moves `alive_until` on; `expires` is when the id is free.
CREATE TABLE licet.kept_calls (
    agent text NOT NULL, session text NOT NULL, tool text NOT NULL, id text NOT NULL, receipt text NOT NULL,
    alive_until timestamptz NOT NULL, expires timestamptz NOT NULL,
    body bytea NOT NULL, signature bytea NOT NULL, data bytea,
    PRIMARY KEY (agent, session, tool, id)
);
CREATE INDEX kept_calls_by_expiry ON licet.kept_calls (expires);
GRANT SELECT, INSERT, UPDATE, DELETE ON licet.kept_calls TO licet_runtime;

-- Begin a call, or return what is known of the first one of its id. No row of another call is ever locked, except one
-- whose time is over, so callers that look again wait for nobody. Whoever asks again after a lost connection has the
-- same receipt, and begins again.
CREATE FUNCTION licet.begin_call(
    its_agent text, its_session text, its_tool text, its_id text, its_receipt text, its_body bytea, its_signature bytea,
    alive_seconds double precision, kept_seconds double precision,
    OUT begun boolean, OUT runs boolean, OUT body bytea, OUT signature bytea, OUT data bytea
) LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found_receipt text;
    found_alive timestamptz;
    found_expires timestamptz;
    alive timestamptz;
    over timestamptz;
BEGIN
    LOOP
        alive := clock_timestamp() + make_interval(secs => alive_seconds);
        over := clock_timestamp() + make_interval(secs => kept_seconds);
        begun := true;
        INSERT INTO kept_calls AS kept (agent, session, tool, id, receipt, alive_until, expires, body, signature)
            VALUES (its_agent, its_session, its_tool, its_id, its_receipt, alive, over, its_body, its_signature)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT kept.receipt, kept.alive_until, kept.expires, kept.body, kept.signature, kept.data
            INTO found_receipt, found_alive, found_expires, body, signature, data
            FROM kept_calls AS kept
            WHERE kept.agent = its_agent AND kept.session = its_session AND kept.tool = its_tool AND kept.id = its_id;
        IF NOT FOUND THEN
            CONTINUE;
        END IF;
        IF found_receipt = its_receipt AND data IS NULL THEN
            RETURN;
        END IF;
        runs := data IS NULL AND found_alive > clock_timestamp();
        IF found_expires > clock_timestamp() OR runs THEN
            begun := false;
            RETURN;
        END IF;
        UPDATE kept_calls AS kept
            SET receipt = its_receipt, alive_until = alive, expires = over,
                body = its_body, signature = its_signature, data = NULL
            WHERE kept.agent = its_agent AND kept.session = its_session AND kept.tool = its_tool AND kept.id = its_id
                AND kept.receipt = found_receipt AND kept.expires = found_expires AND kept.alive_until = found_alive;
        IF FOUND THEN
            RETURN;
        END IF;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION licet.begin_call FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.begin_call TO licet_runtime;
