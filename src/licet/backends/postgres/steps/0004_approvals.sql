-- Requests for approval, what people answered, and which call has used an approval. Nodes add rows, and sign requests and
-- answers: a row that no node has signed is not believed. A use has no signature, since a forged one can only refuse.
CREATE TABLE licet.approval_requests (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
    subject text NOT NULL, agent text NOT NULL, session text NOT NULL, scope text NOT NULL, expires bigint NOT NULL,
    asked bigint NOT NULL, body bytea NOT NULL, node text NOT NULL, signature bytea NOT NULL
);
CREATE INDEX approvals_by_subject ON licet.approval_requests (subject);
CREATE INDEX approvals_by_session ON licet.approval_requests (agent, session, expires);
CREATE INDEX approvals_by_expiry ON licet.approval_requests (expires);
-- What a person reads and no signature repeats: it is dropped when nobody has answered in time.
CREATE TABLE licet.approval_shown (request text PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE licet.approval_answers (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE, request text NOT NULL,
    denies boolean NOT NULL, body bytea NOT NULL, node text NOT NULL, signature bytea NOT NULL
);
CREATE INDEX answers_by_request ON licet.approval_answers (request);
-- `turn` is what can be used once: all of an approval for one call (empty), its deletes (`acts`), the entry of a standing
-- approval (`claim`), or one of many calls (the call).
CREATE TABLE licet.approval_uses (
    request text NOT NULL, turn text NOT NULL, call text NOT NULL, PRIMARY KEY (request, turn)
);
GRANT SELECT, INSERT ON licet.approval_requests, licet.approval_shown, licet.approval_answers, licet.approval_uses
    TO licet_runtime;

-- Whether this call is the one that uses a turn of an approval; asked again, the answer is the same. A denial that is
-- under way ends first, or waits: after it has returned, no call uses the approval.
CREATE FUNCTION licet.take_turn(in_request text, in_turn text, in_call text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    taken_by text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1818845281, hashtext(in_request));
    SELECT call INTO taken_by FROM approval_uses WHERE request = in_request AND turn = in_turn;
    IF FOUND THEN
        RETURN taken_by = in_call;
    END IF;
    IF EXISTS (SELECT FROM approval_answers WHERE request = in_request AND denies)
        OR NOT EXISTS (SELECT FROM approval_requests WHERE id = in_request) THEN
        RETURN false;
    END IF;
    INSERT INTO approval_uses (request, turn, call) VALUES (in_request, in_turn, in_call) ON CONFLICT DO NOTHING;
    SELECT call INTO taken_by FROM approval_uses WHERE request = in_request AND turn = in_turn;
    RETURN coalesce(taken_by = in_call, false);
END $$;

-- Whether this call may go on with an approval: one for a single call serves the first call that says so.
CREATE FUNCTION licet.use_approval(in_request text, in_call text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN licet.take_turn(
        in_request,
        CASE (SELECT scope FROM approval_requests WHERE id = in_request) WHEN 'session' THEN in_call ELSE '' END,
        in_call
    );
END $$;

-- Stores a request: `opened`; `changed` where another for the same came since the caller looked, up to the row `in_seen`;
-- `full` where as many wait already as anybody reads.
CREATE FUNCTION licet.open_approval(
    in_id text, in_subject text, in_agent text, in_session text, in_scope text, in_asked bigint, in_expires bigint,
    in_body bytea, in_node text, in_signature bytea, in_shown bytea,
    in_seen bigint, in_most_waiting integer, in_most_expired integer, in_finished bigint
) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1818845282, hashtext(in_agent || E'\n' || in_session));
    IF EXISTS (SELECT FROM approval_requests WHERE id = in_id) THEN
        RETURN 'opened';
    END IF;
    IF EXISTS (SELECT FROM approval_requests WHERE subject = in_subject AND place > in_seen) THEN
        RETURN 'changed';
    END IF;
    PERFORM licet.forget_approvals(in_asked, in_agent, in_session, in_most_expired, in_finished);
    IF in_most_waiting <= (
        SELECT count(*) FROM approval_requests AS r
        WHERE agent = in_agent AND session = in_session AND expires > in_asked
            AND NOT EXISTS (SELECT FROM approval_uses WHERE request = r.id)
            AND NOT EXISTS (SELECT FROM approval_answers WHERE request = r.id AND denies)
    ) THEN
        RETURN 'full';
    END IF;
    INSERT INTO approval_requests (id, subject, agent, session, scope, asked, expires, body, node, signature)
        VALUES (in_id, in_subject, in_agent, in_session, in_scope, in_asked, in_expires, in_body, in_node, in_signature);
    INSERT INTO approval_shown (request, body) VALUES (in_id, in_shown) ON CONFLICT DO NOTHING;
    RETURN 'opened';
END $$;

-- Stores an answer and tells those who wait: `answered`, or why it came too late.
CREATE FUNCTION licet.answer_approval(
    in_id text, in_request text, in_denies boolean, in_body bytea, in_node text, in_signature bytea
) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1818845281, hashtext(in_request));
    IF EXISTS (SELECT FROM approval_answers WHERE id = in_id) THEN
        RETURN 'answered';
    END IF;
    IF EXISTS (SELECT FROM approval_answers WHERE request = in_request AND denies) THEN
        RETURN 'denied';
    END IF;
    IF EXISTS (SELECT FROM approval_uses WHERE request = in_request AND turn = '') THEN
        RETURN 'used';
    END IF;
    INSERT INTO approval_answers (id, request, denies, body, node, signature)
        VALUES (in_id, in_request, in_denies, in_body, in_node, in_signature);
    IF in_denies THEN
        PERFORM licet.take_back_approvals(in_request);
    END IF;
    PERFORM pg_notify('licet_answers', in_request);
    RETURN 'answered';
END $$;

-- The functions below change rows, which nodes cannot do by themselves, in the one way in which that is harmless.

-- After a denial, the approvals are listed without their signatures: removing the denial then restores no approval.
CREATE FUNCTION licet.take_back_approvals(in_request text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF EXISTS (SELECT FROM approval_answers WHERE request = in_request AND denies) THEN
        UPDATE approval_answers SET signature = '' WHERE request = in_request AND NOT denies;
    END IF;
END $$;

-- Gives back who writes the entry of a standing approval; such a claim approves nothing.
CREATE FUNCTION licet.give_back_claim(in_request text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    DELETE FROM approval_uses WHERE request = in_request AND turn = 'claim';
END $$;

-- Deletes requests that ended long ago, and what was shown of those that nobody has answered in time. A node whose clock
-- is ahead deletes nothing that has not ended by the clock of the server. Whatever a caller says, an answered request
-- stays for a day after its end: who could delete an approval could write its rows again, unused and not denied.
CREATE FUNCTION licet.forget_approvals(
    in_now bigint, in_agent text, in_session text, in_most_expired integer, in_finished bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    moment bigint := least(in_now, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
    gone text[];
BEGIN
    DELETE FROM approval_shown WHERE request IN (
        SELECT s.request FROM approval_shown AS s JOIN approval_requests AS r ON r.id = s.request
        WHERE r.expires <= moment
            AND NOT EXISTS (SELECT FROM approval_uses WHERE request = r.id)
            AND NOT EXISTS (SELECT FROM approval_answers WHERE request = r.id)
        FOR UPDATE OF s SKIP LOCKED
    );
    SELECT array_agg(id) INTO gone FROM (
        SELECT id FROM approval_requests WHERE expires <= moment - greatest(in_finished, 86400000)
        UNION ALL
        (
            SELECT id FROM approval_requests AS r
            WHERE agent = in_agent AND session = in_session AND expires <= moment
                AND NOT EXISTS (SELECT FROM approval_uses WHERE request = r.id)
                AND NOT EXISTS (SELECT FROM approval_answers WHERE request = r.id)
            ORDER BY place DESC OFFSET in_most_expired
        )
    ) AS old;
    IF gone IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(id) INTO gone FROM (
        SELECT id FROM approval_requests WHERE id = ANY (gone) FOR UPDATE SKIP LOCKED
    ) AS mine;
    DELETE FROM approval_shown WHERE request = ANY (gone);
    DELETE FROM approval_answers WHERE request = ANY (gone);
    DELETE FROM approval_uses WHERE request = ANY (gone);
    DELETE FROM approval_requests WHERE id = ANY (gone);
END $$;

REVOKE ALL ON FUNCTION licet.take_turn, licet.use_approval, licet.open_approval, licet.answer_approval,
    licet.take_back_approvals, licet.give_back_claim, licet.forget_approvals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.take_turn, licet.use_approval, licet.open_approval, licet.answer_approval,
    licet.take_back_approvals, licet.give_back_claim, licet.forget_approvals TO licet_runtime;
