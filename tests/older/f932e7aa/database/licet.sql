--
-- PostgreSQL database dump
--

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: licet; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA licet;

--
-- Name: add_state_act(text, text, text, text, text, text[], bytea, text, bytea); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.add_state_act(id text, kind text, agent text, tool text, why text, ends text[], body bytea, node text, signature bytea) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    INSERT INTO state_acts (id, kind, agent, tool, why, body, node, signature)
    VALUES (add_state_act.id, add_state_act.kind, add_state_act.agent, add_state_act.tool, add_state_act.why,
        add_state_act.body, add_state_act.node, add_state_act.signature)
    ON CONFLICT DO NOTHING;
    INSERT INTO thawed (id) SELECT DISTINCT ended.id FROM unnest(ends) AS ended(id) ON CONFLICT DO NOTHING;
    PERFORM pg_notify('licet_freezes', '');
END $$;

--
-- Name: add_to_counters(text[], text[], text[], text[], bigint[], numeric[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.add_to_counters(agents text[], kinds text[], names text[], tools text[], more_calls bigint[], more_cost numeric[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
BEGIN
    UPDATE budget_counters AS c SET calls = c.calls + k.calls, cost_usd = c.cost_usd + k.cost_usd
    FROM unnest(agents, kinds, names, tools, more_calls, more_cost)
        AS k (agent, kind, name, tool, calls, cost_usd)
    WHERE c.agent = k.agent AND c.kind = k.kind AND c.name = k.name AND c.tool = k.tool
        AND (k.calls <> 0 OR k.cost_usd <> 0);
END $$;

--
-- Name: answer_approval(text, text, boolean, bytea, text, bytea); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.answer_approval(in_id text, in_request text, in_denies boolean, in_body bytea, in_node text, in_signature bytea) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: append_entries(bytea, text, bytea, text[], text[], bigint[], bytea[], text[], text[], text[], text[], text[], bytea[], bytea[], boolean[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.append_entries(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], taken boolean[] DEFAULT NULL::boolean[]) RETURNS TABLE(lost_agent text, lost_session text, tail_sequence bigint, tail_hash bytea)
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    is_new boolean;
    lost_agents text[];
    lost_sessions text[];
BEGIN
    INSERT INTO batches (id, node, hashes, signature)
    SELECT batch_id, by_node, string_agg(one, ''::bytea ORDER BY at), signed
    FROM unnest(given_hashes) WITH ORDINALITY AS given (one, at)
    ON CONFLICT (id) DO NOTHING;
    is_new := FOUND;
    -- Who moves the ledger has locked that table, and was waited for.
    IF EXISTS (SELECT FROM ledger WHERE gone <> '') THEN
        RAISE EXCEPTION 'the ledger was moved, %', (SELECT gone FROM ledger);
    END IF;
    IF NOT is_new THEN  -- it was sent before
        SELECT array_agg(given.agent), array_agg(given.session) INTO lost_agents, lost_sessions
        FROM unnest(agents, sessions, sequences, previous, given_hashes, taken)
            AS given (agent, session, sequence, previous, hash, taken)
        WHERE given.previous IS NOT NULL AND given.taken IS NOT FALSE AND NOT EXISTS (
            SELECT FROM entries AS kept
            WHERE kept.agent = given.agent AND kept.session = given.session AND kept.sequence = given.sequence
                AND kept.hash = given.hash
        );
    ELSE
        WITH given AS (
            SELECT * FROM unnest(
                agents, sessions, sequences, previous, ids, kinds, tools, verdicts, times, given_hashes, bodies, taken
            ) AS given (
                agent, session, sequence, previous, id, kind, tool, verdict, time, hash, body, taken
            ) WHERE given.taken IS NOT FALSE
        ), begun AS (
            -- Where two nodes are at the same place in a session, the second waits here for the first. All take their
            -- sessions in one order, so that nobody waits in a circle.
            INSERT INTO entries (agent, session, sequence, id, kind, tool, verdict, time, hash, body, batch)
            SELECT given.agent, given.session, given.sequence, given.id, given.kind, given.tool, given.verdict,
                given.time, given.hash, given.body, batch_id
            FROM given LEFT JOIN LATERAL (
                SELECT entries.hash FROM entries
                WHERE entries.agent = given.agent AND entries.session = given.session
                    AND entries.sequence = given.sequence - 1 LIMIT 1
            ) AS before ON true
            WHERE given.previous IS NOT NULL AND coalesce(before.hash, '') = given.previous
                AND (given.sequence = 1 OR before.hash IS NOT NULL)
            ORDER BY given.agent COLLATE "C", given.session COLLATE "C"
            ON CONFLICT DO NOTHING
            RETURNING entries.agent, entries.session
        ), following AS (
            INSERT INTO entries (agent, session, sequence, id, kind, tool, verdict, time, hash, body, batch)
            SELECT given.agent, given.session, given.sequence, given.id, given.kind, given.tool, given.verdict,
                given.time, given.hash, given.body, batch_id
            FROM given JOIN begun ON begun.agent = given.agent AND begun.session = given.session
            WHERE given.previous IS NULL
        )
        SELECT array_agg(given.agent), array_agg(given.session) INTO lost_agents, lost_sessions
        FROM given LEFT JOIN begun ON begun.agent = given.agent AND begun.session = given.session
        WHERE given.previous IS NOT NULL AND begun.agent IS NULL;
    END IF;
    IF lost_agents IS NULL THEN
        RETURN;
    END IF;
    -- In a statement of its own, which sees what the other node has committed meanwhile.
    RETURN QUERY
        SELECT lost.agent, lost.session, coalesce(tail.sequence, 0), coalesce(tail.hash, '')
        FROM unnest(lost_agents, lost_sessions) AS lost (agent, session) LEFT JOIN LATERAL (
            SELECT entries.sequence, entries.hash FROM entries
            WHERE entries.agent = lost.agent AND entries.session = lost.session
            ORDER BY entries.sequence DESC LIMIT 1
        ) AS tail ON true;
END $$;

--
-- Name: begin_call(text, text, text, text, text, bytea, bytea, double precision, double precision); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.begin_call(its_agent text, its_session text, its_tool text, its_id text, its_receipt text, its_body bytea, its_signature bytea, alive_seconds double precision, kept_seconds double precision, OUT begun boolean, OUT runs boolean, OUT body bytea, OUT signature bytea, OUT data bytea) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: begin_leased(text[], bigint[], integer[], numeric[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.begin_leased(ids text[], numbers bigint[], calls integer[], spent numeric[]) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $_$
#variable_conflict use_column
BEGIN
    PERFORM FROM leases AS l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
    RETURN QUERY SELECT l.id FROM leases AS l WHERE l.id = ANY (ids);
    UPDATE leases AS l SET number = u.number, calls = u.calls, spent = u.spent
    FROM unnest($1, $2, $3, $4) AS u (id, number, calls, spent)
    WHERE l.id = u.id AND l.number < u.number;
END $_$;

--
-- Name: forget_approvals(bigint, text, text, integer, bigint); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.forget_approvals(in_now bigint, in_agent text, in_session text, in_most_expired integer, in_finished bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: forget_reservations(double precision); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.forget_reservations(seconds double precision) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    AS $$
    DELETE FROM reservations WHERE ended < clock_timestamp() - make_interval(secs => seconds);
    DELETE FROM budget_batches AS b WHERE b.made < clock_timestamp() - make_interval(secs => seconds)
        AND NOT EXISTS (SELECT FROM reservations AS r WHERE r.ended IS NULL AND r.batch = b.id);
$$;

--
-- Name: freeze_lock(); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.freeze_lock() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'licet', 'pg_temp'
    AS $$ SELECT 465624563717::bigint $$;

--
-- Name: frozen(text, text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.frozen(agent text, tool text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: give_back_claim(text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.give_back_claim(in_request text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    DELETE FROM approval_uses WHERE request = in_request AND turn = 'claim';
END $$;

--
-- Name: kv_forget(bytea, double precision); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.kv_forget(at_scope bytea, moment double precision) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: kv_lock(bytea); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.kv_lock(scope bytea) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'licet', 'pg_temp'
    AS $$ SELECT ('x' || substr(md5('licet kv' || encode(scope, 'hex')), 1, 16))::bit(64)::bigint $$;

--
-- Name: kv_size(bytea, text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.kv_size(key bytea, value text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'licet', 'pg_temp'
    AS $$ SELECT 64 + length(key)::bigint + octet_length(value) $$;

--
-- Name: kv_write(uuid, bytea, bytea, text, double precision, bigint, double precision, bytea); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.kv_write(write uuid, at_scope bytea, at_key bytea, new_value text, ttl double precision, most bigint, moment double precision, ended bytea) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: open_approval(text, text, text, text, text, bigint, bigint, bytea, text, bytea, bytea, bigint, integer, integer, bigint); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.open_approval(in_id text, in_subject text, in_agent text, in_session text, in_scope text, in_asked bigint, in_expires bigint, in_body bytea, in_node text, in_signature bytea, in_shown bytea, in_seen bigint, in_most_waiting integer, in_most_expired integer, in_finished bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: open_calls(bytea, text, bytea, text[], text[], bigint[], bytea[], text[], text[], text[], text[], text[], bytea[], bytea[], integer[], text[], text[], text[], text[], text[], text[], integer[], integer[], integer[], integer[], numeric[], integer[], bigint[], bigint[], bigint[], numeric[], numeric[], numeric[], text, double precision, integer[], text[], text[], bigint[], integer[], numeric[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.open_calls(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], use_of integer[], uses text[], c_agents text[], c_kinds text[], c_names text[], c_tools text[], claim_ids text[], claim_of integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, block_of integer[], blocks text[], sum_ids text[], sum_numbers bigint[], sum_calls integer[], sum_spent numeric[]) RETURNS TABLE(call integer, claim integer, state text, detail text, tail_sequence bigint, tail_hash bytea, granted integer, session_calls bigint, session_cost numeric, tool_calls bigint, tool_cost numeric, day_calls bigint, day_cost numeric)
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_variable
DECLARE
    total integer := cardinality(ids); n integer; state_of text[] := array_fill('opened'::text, ARRAY[total]);
    detail_of text[] := array_fill(''::text, ARRAY[total]); why text; used boolean; found_blocks text[]; one record;
    taken integer[]; b1 bigint[]; b2 numeric[]; b3 bigint[]; b4 numeric[]; b5 bigint[]; b6 numeric[];
    moves boolean; tails jsonb := '{}'; skip boolean[];
BEGIN
    -- A freeze that was committed takes this lock alone, and so waits for what is under way. It is read by the next
    -- statement: this one would still see the time before.
    PERFORM pg_advisory_xact_lock_shared(freeze_lock());
    -- The same batch may still be under way, over a connection that was lost.
    PERFORM pg_advisory_xact_lock(1818845287, hashtext(encode(batch_id, 'hex')));
    IF EXISTS (SELECT FROM batches AS b WHERE b.id = batch_id) THEN
        FOR n IN 1..total LOOP
            call := n;
            SELECT CASE WHEN count(*) > 0 THEN 'opened' ELSE 'moved' END INTO state FROM entries AS e
                WHERE e.agent = agents[n] AND e.session = sessions[n] AND e.sequence = sequences[n]
                    AND e.hash = given_hashes[n];
            state_of[n] := state;
            IF state = 'moved' THEN
                SELECT e.sequence, e.hash INTO tail_sequence, tail_hash FROM entries AS e
                    WHERE e.agent = agents[n] AND e.session = sessions[n] ORDER BY e.sequence DESC LIMIT 1;
            END IF;
            RETURN NEXT;
            tail_sequence := NULL; tail_hash := NULL;
        END LOOP;
        FOR n IN 1..cardinality(claim_ids) LOOP
            IF state_of[claim_of[n]] = 'opened' THEN
                SELECT r.calls, r.session_calls, r.session_cost, r.tool_calls, r.tool_cost, r.day_calls, r.day_cost
                    INTO granted, session_calls, session_cost, tool_calls, tool_cost, day_calls, day_cost
                    FROM reservations AS r WHERE r.id = claim_ids[n];
                call := claim_of[n]; claim := n; state := NULL;
                RETURN NEXT;
            END IF;
        END LOOP;
        RETURN;
    END IF;
    FOR one IN SELECT k.agent, k.tool, frozen(k.agent, k.tool) AS why
        FROM (SELECT DISTINCT u.agent, u.tool FROM unnest(agents, tools) AS u (agent, tool)) AS k
    LOOP
        IF one.why <> '' THEN
            FOR n IN 1..total LOOP
                IF agents[n] = one.agent AND tools[n] = one.tool THEN
                    state_of[n] := 'frozen'; detail_of[n] := one.why;
                END IF;
            END LOOP;
        END IF;
    END LOOP;
    -- Rounds: one in which a call turns out not to open, though something was done for it, is undone as a whole. Each
    -- such round stops one call more.
    LOOP
        -- An entry links to the one before it in its session, so it cannot be kept without that one.
        FOR n IN 2..total LOOP
            IF state_of[n] = 'opened' AND previous[n] IS NULL THEN
                IF EXISTS (
                    SELECT FROM generate_series(1, n - 1) AS m
                    WHERE agents[m] = agents[n] AND sessions[m] = sessions[n] AND state_of[m] <> 'opened'
                ) THEN
                    state_of[n] := 'moved';
                END IF;
            END IF;
        END LOOP;
        EXIT WHEN NOT 'opened' = ANY (state_of);
        BEGIN
            moves := false;
            IF cardinality(claim_ids) > 0 THEN
                skip := NULL;
                IF NOT 'opened' = ALL (state_of) THEN
                    SELECT array_agg(state_of[c] <> 'opened' ORDER BY p) INTO skip
                        FROM unnest(claim_of) WITH ORDINALITY AS x (c, p);
                END IF;
                SELECT array_agg(r.granted ORDER BY p), array_agg(r.session_calls ORDER BY p),
                    array_agg(r.session_cost ORDER BY p), array_agg(r.tool_calls ORDER BY p),
                    array_agg(r.tool_cost ORDER BY p), array_agg(r.day_calls ORDER BY p), array_agg(r.day_cost ORDER BY p)
                    INTO taken, b1, b2, b3, b4, b5, b6
                    FROM ROWS FROM (reserve(
                        c_agents, c_kinds, c_names, c_tools, claim_ids, claim_of, at_session, at_tool, at_day, costs,
                        wanted, most_session_calls, most_day_calls, most_tool_calls, most_session_cost, most_day_cost,
                        most_tool_cost, owner, lease_seconds, by_node, NULL, NULL, NULL, skip
                    )) WITH ORDINALITY AS r (
                        granted, session_calls, session_cost, tool_calls, tool_cost, day_calls, day_cost, p
                    );
                FOR n IN 1..cardinality(claim_ids) LOOP
                    IF taken[n] = 0 AND state_of[claim_of[n]] = 'opened' THEN
                        state_of[claim_of[n]] := 'exceeded';
                        -- Those after it in its session have to wait for another round.
                        moves := moves OR EXISTS (
                            SELECT FROM generate_series(claim_of[n] + 1, total) AS m
                            WHERE agents[m] = agents[claim_of[n]] AND sessions[m] = sessions[claim_of[n]]
                                AND state_of[m] = 'opened'
                        );
                    END IF;
                END LOOP;
            END IF;
            IF cardinality(sum_ids) > 0 THEN
                SELECT coalesce(array_agg(b), '{}') INTO found_blocks
                    FROM begin_leased(sum_ids, sum_numbers, sum_calls, sum_spent) AS b;
                FOR n IN 1..cardinality(blocks) LOOP
                    IF state_of[block_of[n]] = 'opened' AND NOT blocks[n] = ANY (found_blocks) THEN
                        state_of[block_of[n]] := 'ended'; detail_of[block_of[n]] := blocks[n];
                        moves := true;
                    END IF;
                END LOOP;
            END IF;
            FOR one IN SELECT u.call, u.request FROM unnest(use_of, uses) AS u (call, request) ORDER BY u.request LOOP
                IF NOT moves AND state_of[one.call] = 'opened' AND NOT use_approval(one.request, ids[one.call]) THEN
                    state_of[one.call] := 'used'; detail_of[one.call] := one.request;
                    moves := true;
                END IF;
            END LOOP;
            IF NOT moves AND 'opened' = ANY (state_of) THEN
                FOR one IN SELECT * FROM append_entries(
                    batch_id, by_node, signed, agents, sessions, sequences, previous, ids, kinds, tools, verdicts, times,
                    given_hashes, bodies, (SELECT array_agg(s = 'opened' ORDER BY p) FROM unnest(state_of)
                        WITH ORDINALITY AS x (s, p))
                ) LOOP
                    FOR n IN 1..total LOOP
                        IF agents[n] = one.lost_agent AND sessions[n] = one.lost_session AND state_of[n] = 'opened' THEN
                            state_of[n] := 'moved';
                            moves := true;
                        END IF;
                    END LOOP;
                    tails := tails || jsonb_build_object(
                        one.lost_agent || E'\n' || one.lost_session,
                        jsonb_build_array(one.tail_sequence, encode(one.tail_hash, 'hex'))
                    );
                END LOOP;
            END IF;
            IF moves THEN
                RAISE EXCEPTION USING ERRCODE = 'LC001';
            END IF;
            EXIT;
        EXCEPTION WHEN SQLSTATE 'LC001' THEN
            NULL;
        END;
    END LOOP;
    FOR n IN 1..total LOOP
        call := n; state := state_of[n]; detail := detail_of[n];
        tail_sequence := NULL; tail_hash := NULL;
        IF tails ? (agents[n] || E'\n' || sessions[n]) THEN
            tail_sequence := (tails -> (agents[n] || E'\n' || sessions[n]) ->> 0)::bigint;
            tail_hash := decode(tails -> (agents[n] || E'\n' || sessions[n]) ->> 1, 'hex');
        END IF;
        RETURN NEXT;
    END LOOP;
    tail_sequence := NULL; tail_hash := NULL; state := NULL; detail := NULL;
    FOR n IN 1..cardinality(claim_ids) LOOP
        IF state_of[claim_of[n]] = 'opened' THEN
            call := claim_of[n]; claim := n; granted := taken[n];
            session_calls := b1[n]; session_cost := b2[n]; tool_calls := b3[n]; tool_cost := b4[n];
            day_calls := b5[n]; day_cost := b6[n];
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

--
-- Name: place_entries(bigint, bytea[], text[], text[], bigint[], bigint, bytea, bytea, bytea, text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.place_entries(after bigint, hashes bytea[], agents text[], sessions text[], sequences bigint[], head_size bigint, head_body bytea, head_signature bytea, head_frontier bytea, head_below text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(465624563714);
    IF (SELECT max(size) FROM heads) <> after THEN
        RETURN false;
    END IF;
    INSERT INTO places (number, hash, agent, session, sequence)
        SELECT after + at, given.hash, given.agent, given.session, given.sequence
        FROM unnest(hashes, agents, sessions, sequences) WITH ORDINALITY AS given (hash, agent, session, sequence, at);
    INSERT INTO heads (size, body, signature, frontier, below)
        VALUES (head_size, head_body, head_signature, head_frontier, head_below::xid8);
    RETURN true;
END $$;

--
-- Name: renew_leases(text, double precision); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.renew_leases(of_owner text, seconds double precision) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    PERFORM FROM leases AS l WHERE l.owner = of_owner ORDER BY l.id FOR UPDATE;
    RETURN QUERY
        UPDATE leases AS l SET expires = clock_timestamp() + make_interval(secs => seconds)
        WHERE l.owner = of_owner RETURNING l.id;
END $$;

--
-- Name: reserve(text[], text[], text[], text[], text[], integer[], integer[], integer[], integer[], numeric[], integer[], bigint[], bigint[], bigint[], numeric[], numeric[], numeric[], text, double precision, text, text, bytea, bytea, boolean[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.reserve(agents text[], kinds text[], names text[], tools text[], ids text[], of_call integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, node text, batch text, body bytea, signature bytea, skip boolean[] DEFAULT NULL::boolean[]) RETURNS TABLE(granted integer, session_calls bigint, session_cost numeric, tool_calls bigint, tool_cost numeric, day_calls bigint, day_cost numeric)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_variable
DECLARE
    calls bigint[]; spent numeric[]; calls_now bigint[]; spent_now numeric[];
    known text[]; earlier reservations;
    total integer := cardinality(ids); first integer := 1; last integer; n integer; s integer; t integer; d integer;
    cost numeric; number integer; fits boolean; numbers integer[];
    new_at integer[] := '{}'; new_calls integer[] := '{}';
    b_session_calls bigint[] := '{}'; b_session_cost numeric[] := '{}'; b_tool_calls bigint[] := '{}';
    b_tool_cost numeric[] := '{}'; b_day_calls bigint[] := '{}'; b_day_cost numeric[] := '{}';
BEGIN
    IF EXISTS (SELECT FROM unnest(costs) AS one WHERE (one BETWEEN 0 AND 1e100) IS NOT TRUE) THEN
        RAISE EXCEPTION 'a claim costs less than nothing, or no amount';
    END IF;
    SELECT array_agg(c.calls ORDER BY c.place), array_agg(c.cost_usd ORDER BY c.place)
        INTO calls, spent FROM take_counters(agents, kinds, names, tools) AS c;
    calls_now := calls;
    spent_now := spent;
    -- After the counters were taken: whoever made one of these before has ended its transaction.
    SELECT coalesce(array_agg(r.id), '{}') INTO known FROM reservations AS r WHERE r.id = ANY (ids);
    -- Where everything fits, as nearly always, one statement says so for all claims, and what was spent before each.
    IF known = '{}' AND skip IS NULL AND 1 = ALL (wanted) THEN
        SELECT bool_and(
                (x.sc < x.msc) IS NOT FALSE AND (x.tc < x.mtc) IS NOT FALSE AND (x.dc < x.mdc) IS NOT FALSE
                AND (x.sm + x.cost <= x.msm) IS NOT FALSE AND (x.tm + x.cost <= x.mtm) IS NOT FALSE
                AND (x.dm + x.cost <= x.mdm) IS NOT FALSE
            ), array_agg(x.sc ORDER BY x.n), array_agg(x.sm ORDER BY x.n), array_agg(x.tc ORDER BY x.n),
            array_agg(x.tm ORDER BY x.n), array_agg(x.dc ORDER BY x.n), array_agg(x.dm ORDER BY x.n)
        INTO fits, b_session_calls, b_session_cost, b_tool_calls, b_tool_cost, b_day_calls, b_day_cost
        FROM (
            SELECT u.n, u.cost, u.msc, u.mdc, u.mtc, u.msm, u.mdm, u.mtm,
                calls[u.s] + row_number() OVER by_session - 1 AS sc, spent[u.s] + sum(u.cost) OVER by_session - u.cost AS sm,
                calls[u.t] + row_number() OVER by_tool - 1 AS tc, spent[u.t] + sum(u.cost) OVER by_tool - u.cost AS tm,
                calls[u.d] + row_number() OVER by_day - 1 AS dc, spent[u.d] + sum(u.cost) OVER by_day - u.cost AS dm
            FROM unnest(
                at_session, at_tool, at_day, costs, most_session_calls, most_day_calls, most_tool_calls,
                most_session_cost, most_day_cost, most_tool_cost
            ) WITH ORDINALITY AS u (s, t, d, cost, msc, mdc, mtc, msm, mdm, mtm, n)
            WINDOW by_session AS (PARTITION BY u.s ORDER BY u.n ROWS UNBOUNDED PRECEDING),
                by_tool AS (PARTITION BY u.t ORDER BY u.n ROWS UNBOUNDED PRECEDING),
                by_day AS (PARTITION BY u.d ORDER BY u.n ROWS UNBOUNDED PRECEDING)
        ) AS x;
        IF fits THEN
            PERFORM add_to_counters(
                agents, kinds, names, tools,
                (SELECT array_agg(coalesce(k.calls, 0) ORDER BY p.p) FROM generate_series(1, cardinality(agents)) AS p (p)
                    LEFT JOIN (SELECT u.at, count(*) AS calls FROM unnest(at_session || at_tool || at_day) AS u (at)
                        GROUP BY u.at) AS k ON k.at = p.p),
                (SELECT array_agg(coalesce(k.cost, 0) ORDER BY p.p) FROM generate_series(1, cardinality(agents)) AS p (p)
                    LEFT JOIN (SELECT u.at, sum(u.cost) AS cost
                        FROM unnest(at_session || at_tool || at_day, costs || costs || costs) AS u (at, cost)
                        GROUP BY u.at) AS k ON k.at = p.p)
            );
            INSERT INTO reservations
                SELECT x.id, agents[x.s], names[x.s], tools[x.t], names[x.d], 1, x.cost, x.sc, x.sm, x.tc, x.tm, x.dc,
                    x.dm, batch
                FROM unnest(ids, at_session, at_tool, at_day, costs, b_session_calls, b_session_cost, b_tool_calls,
                    b_tool_cost, b_day_calls, b_day_cost) AS x (id, s, t, d, cost, sc, sm, tc, tm, dc, dm);
            IF signature IS NOT NULL THEN
                INSERT INTO budget_batches VALUES (batch, node, body, signature) ON CONFLICT DO NOTHING;
            END IF;
            RETURN QUERY SELECT 1, x.* FROM unnest(b_session_calls, b_session_cost, b_tool_calls, b_tool_cost,
                b_day_calls, b_day_cost) AS x;
            RETURN;
        END IF;
        b_session_calls := '{}'; b_session_cost := '{}'; b_tool_calls := '{}'; b_tool_cost := '{}';
        b_day_calls := '{}'; b_day_cost := '{}';
    END IF;
    WHILE first <= total LOOP
        last := first;
        WHILE last < total AND of_call[last + 1] = of_call[first] LOOP
            last := last + 1;
        END LOOP;
        fits := skip[first] IS NOT TRUE;
        numbers := '{}';
        FOR n IN first..last LOOP
            s := at_session[n]; t := at_tool[n]; d := at_day[n]; cost := costs[n];
            number := least(wanted[n], 1000000);
            IF NOT fits OR calls_now[s] >= most_session_calls[n] OR calls_now[t] >= most_tool_calls[n]
                OR calls_now[d] >= most_day_calls[n]
                OR spent_now[s] + cost > most_session_cost[n] OR spent_now[t] + cost > most_tool_cost[n]
                OR spent_now[d] + cost > most_day_cost[n]
            THEN
                fits := false;
                EXIT;
            END IF;
            IF number > 1 THEN
                number := greatest(1, least(
                    number, (most_session_calls[n] - calls_now[s]) / 8, (most_tool_calls[n] - calls_now[t]) / 8,
                    (most_day_calls[n] - calls_now[d]) / 8
                ));
                IF cost > 0 THEN
                    number := greatest(1, least(
                        number, div(most_session_cost[n] - spent_now[s], 8 * cost),
                        div(most_tool_cost[n] - spent_now[t], 8 * cost), div(most_day_cost[n] - spent_now[d], 8 * cost)
                    ));
                END IF;
            END IF;
            numbers := numbers || number;
        END LOOP;
        FOR n IN first..last LOOP
            s := at_session[n]; t := at_tool[n]; d := at_day[n]; cost := costs[n];
            IF ids[n] = ANY (known) THEN
                SELECT * INTO earlier FROM reservations AS r WHERE r.id = ids[n];
                granted := earlier.calls;
                session_calls := earlier.session_calls; session_cost := earlier.session_cost;
                tool_calls := earlier.tool_calls; tool_cost := earlier.tool_cost;
                day_calls := earlier.day_calls; day_cost := earlier.day_cost;
            ELSE
                session_calls := calls_now[s]; session_cost := spent_now[s];
                tool_calls := calls_now[t]; tool_cost := spent_now[t];
                day_calls := calls_now[d]; day_cost := spent_now[d];
                granted := 0;
                IF fits THEN
                    granted := numbers[n - first + 1];
                    cost := cost * granted;
                    calls_now[s] := calls_now[s] + granted; spent_now[s] := spent_now[s] + cost;
                    calls_now[t] := calls_now[t] + granted; spent_now[t] := spent_now[t] + cost;
                    calls_now[d] := calls_now[d] + granted; spent_now[d] := spent_now[d] + cost;
                    new_at := new_at || n; new_calls := new_calls || granted;
                    b_session_calls := b_session_calls || session_calls;
                    b_session_cost := b_session_cost || session_cost;
                    b_tool_calls := b_tool_calls || tool_calls; b_tool_cost := b_tool_cost || tool_cost;
                    b_day_calls := b_day_calls || day_calls; b_day_cost := b_day_cost || day_cost;
                END IF;
            END IF;
            RETURN NEXT;
        END LOOP;
        first := last + 1;
    END LOOP;
    IF cardinality(new_at) > 0 THEN
        PERFORM add_to_counters(
            agents, kinds, names, tools,
            (SELECT array_agg(a - b ORDER BY p) FROM unnest(calls_now, calls) WITH ORDINALITY AS x (a, b, p)),
            (SELECT array_agg(a - b ORDER BY p) FROM unnest(spent_now, spent) WITH ORDINALITY AS x (a, b, p))
        );
        INSERT INTO reservations
            SELECT ids[x.at], agents[at_session[x.at]], names[at_session[x.at]], tools[at_tool[x.at]],
                names[at_day[x.at]], x.calls, costs[x.at] * x.calls, x.sc, x.sm, x.tc, x.tm, x.dc, x.dm, batch
            FROM unnest(new_at, new_calls, b_session_calls, b_session_cost, b_tool_calls, b_tool_cost, b_day_calls,
                b_day_cost) AS x (at, calls, sc, sm, tc, tm, dc, dm);
        INSERT INTO leases
            SELECT ids[x.at], coalesce(node, ''), owner, clock_timestamp() + make_interval(secs => lease_seconds),
                x.calls, costs[x.at] * x.calls, 0, 1, costs[x.at]
            FROM unnest(new_at, new_calls) AS x (at, calls) WHERE x.calls > 1;
        IF signature IS NOT NULL THEN
            INSERT INTO budget_batches VALUES (batch, node, body, signature) ON CONFLICT DO NOTHING;
        END IF;
    END IF;
END $$;

--
-- Name: settle(text[], text[], text[], text[], text[], integer[], integer[], integer[], numeric[], numeric[], integer[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.settle(agents text[], kinds text[], names text[], tools text[], ids text[], at_session integer[], at_tool integer[], at_day integer[], reserved numeric[], costs numeric[], made_calls integer[]) RETURNS TABLE(place integer, cost_usd numeric)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
    more_calls bigint[]; more_cost numeric[];
BEGIN
    PERFORM take_counters(agents, kinds, names, tools);
    WITH asked AS (
        SELECT DISTINCT ON (u.id) u.* FROM unnest(ids, at_session, at_tool, at_day, reserved, costs, made_calls)
            WITH ORDINALITY AS u (id, s, t, d, reserved, cost, calls, place)
        ORDER BY u.id, u.place
    ), ended AS (
        UPDATE reservations AS r SET ended = clock_timestamp() FROM asked AS a
        WHERE r.id = a.id AND r.ended IS NULL AND r.cost_usd = a.reserved
            AND a.cost BETWEEN 0 AND r.cost_usd AND a.calls BETWEEN 0 AND r.calls
            AND (r.agent, r.session) = (agents[a.s], names[a.s]) AND kinds[a.s] = 'session'
            AND (r.agent, r.session, r.tool) = (agents[a.t], names[a.t], tools[a.t]) AND kinds[a.t] = 'tool'
            AND (r.agent, r.day) = (agents[a.d], names[a.d]) AND kinds[a.d] = 'day'
        RETURNING r.id, a.s, a.t, a.d, a.calls - r.calls AS calls, a.cost - r.cost_usd AS cost
    ), gone AS (
        DELETE FROM leases AS l USING ended AS e WHERE l.id = e.id
    ), sums AS (
        SELECT k.place, sum(e.calls) AS calls, sum(e.cost) AS cost FROM ended AS e
        CROSS JOIN LATERAL (VALUES (e.s), (e.t), (e.d)) AS k (place) GROUP BY k.place
    )
    SELECT array_agg(coalesce(u.calls, 0) ORDER BY k.place), array_agg(coalesce(u.cost, 0) ORDER BY k.place)
        INTO more_calls, more_cost
        FROM unnest(agents) WITH ORDINALITY AS k (agent, place) LEFT JOIN sums AS u ON u.place = k.place;
    PERFORM add_to_counters(agents, kinds, names, tools, more_calls, more_cost);
    RETURN QUERY
        SELECT u.place::integer, r.cost_usd FROM unnest(ids) WITH ORDINALITY AS u (id, place)
        JOIN reservations AS r ON r.id = u.id AND r.ended IS NULL;
END $$;

--
-- Name: settle_expired(); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.settle_expired() RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    block reservations; lease leases; keys text[];
BEGIN
    SELECT r.* INTO block FROM leases AS l JOIN reservations AS r ON r.id = l.id
        WHERE l.expires < clock_timestamp() ORDER BY l.expires LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    keys := ARRAY[block.agent, block.agent, block.agent];
    PERFORM take_counters(
        keys, '{day,session,tool}', ARRAY[block.day, block.session, block.session], ARRAY['', '', block.tool]
    );
    -- A call that takes from the block at this moment has locked the row: then this waits, and sees its sum.
    DELETE FROM leases AS l WHERE l.id = block.id AND l.expires < clock_timestamp() RETURNING l.* INTO lease;
    IF FOUND THEN
        UPDATE reservations AS r SET ended = clock_timestamp() WHERE r.id = block.id AND r.ended IS NULL;
        IF FOUND THEN
            PERFORM add_to_counters(
                keys, '{day,session,tool}', ARRAY[block.day, block.session, block.session],
                ARRAY['', '', block.tool], array_fill((lease.calls - block.calls)::bigint, '{3}'),
                array_fill(lease.spent - block.cost_usd, '{3}')
            );
        END IF;
    END IF;
    RETURN block.id;
END $$;

--
-- Name: take_back_approvals(text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.take_back_approvals(in_request text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    IF EXISTS (SELECT FROM approval_answers WHERE request = in_request AND denies) THEN
        UPDATE approval_answers SET signature = '' WHERE request = in_request AND NOT denies;
    END IF;
END $$;

--
-- Name: take_counters(text[], text[], text[], text[]); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.take_counters(agents text[], kinds text[], names text[], tools text[]) RETURNS TABLE(place integer, calls bigint, cost_usd numeric)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO budget_counters AS new (agent, kind, name, tool)
        SELECT k.agent, k.kind, k.name, k.tool
        FROM unnest(agents, kinds, names, tools) WITH ORDINALITY AS k (agent, kind, name, tool, place)
        WHERE NOT EXISTS (
            SELECT FROM budget_counters AS c
            WHERE c.agent = k.agent AND c.kind = k.kind AND c.name = k.name AND c.tool = k.tool
        )
        ORDER BY k.place
    ON CONFLICT DO NOTHING;
    RETURN QUERY
        SELECT k.place::integer, c.calls, c.cost_usd
        FROM unnest(agents, kinds, names, tools) WITH ORDINALITY AS k (agent, kind, name, tool, place)
        JOIN budget_counters AS c
            ON c.agent = k.agent AND c.kind = k.kind AND c.name = k.name AND c.tool = k.tool
        ORDER BY k.place
        FOR UPDATE OF c;
END $$;

--
-- Name: take_turn(text, text, text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.take_turn(in_request text, in_turn text, in_call text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

--
-- Name: use_approval(text, text); Type: FUNCTION; Schema: licet; Owner: -
--

CREATE FUNCTION licet.use_approval(in_request text, in_call text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'licet', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    RETURN licet.take_turn(
        in_request,
        CASE (SELECT scope FROM approval_requests WHERE id = in_request) WHEN 'session' THEN in_call ELSE '' END,
        in_call
    );
END $$;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: approval_answers; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.approval_answers (
    place bigint NOT NULL,
    id text NOT NULL,
    request text NOT NULL,
    denies boolean NOT NULL,
    body bytea NOT NULL,
    node text NOT NULL,
    signature bytea NOT NULL
);

--
-- Name: approval_answers_place_seq; Type: SEQUENCE; Schema: licet; Owner: -
--

ALTER TABLE licet.approval_answers ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME licet.approval_answers_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: approval_requests; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.approval_requests (
    place bigint NOT NULL,
    id text NOT NULL,
    subject text NOT NULL,
    agent text NOT NULL,
    session text NOT NULL,
    scope text NOT NULL,
    expires bigint NOT NULL,
    asked bigint NOT NULL,
    body bytea NOT NULL,
    node text NOT NULL,
    signature bytea NOT NULL
);

--
-- Name: approval_requests_place_seq; Type: SEQUENCE; Schema: licet; Owner: -
--

ALTER TABLE licet.approval_requests ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME licet.approval_requests_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: approval_shown; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.approval_shown (
    request text NOT NULL,
    body bytea NOT NULL
);

--
-- Name: approval_uses; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.approval_uses (
    request text NOT NULL,
    turn text NOT NULL,
    call text NOT NULL
);

--
-- Name: batches; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.batches (
    id bytea NOT NULL,
    node text NOT NULL,
    hashes bytea NOT NULL,
    signature bytea NOT NULL
);

--
-- Name: budget_batches; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.budget_batches (
    id text NOT NULL,
    node text NOT NULL,
    body bytea NOT NULL,
    signature bytea NOT NULL,
    made timestamp with time zone DEFAULT now() NOT NULL
);

--
-- Name: budget_counters; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.budget_counters (
    agent text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    tool text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    calls bigint DEFAULT 0 NOT NULL,
    cost_usd numeric DEFAULT 0 NOT NULL,
    CONSTRAINT budget_counters_kind_check CHECK ((kind = ANY (ARRAY['session'::text, 'tool'::text, 'day'::text])))
)
WITH (fillfactor='60');

--
-- Name: entries; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.entries (
    agent text NOT NULL COLLATE pg_catalog."C",
    session text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    tool text NOT NULL COLLATE pg_catalog."C",
    verdict text NOT NULL COLLATE pg_catalog."C",
    "time" text NOT NULL COLLATE pg_catalog."C",
    hash bytea NOT NULL,
    body bytea NOT NULL,
    batch bytea NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL
)
WITH (toast_tuple_target='8160');
ALTER TABLE ONLY licet.entries ALTER COLUMN body SET STORAGE EXTERNAL;

--
-- Name: heads; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.heads (
    size bigint NOT NULL,
    body bytea NOT NULL,
    signature bytea NOT NULL,
    frontier bytea NOT NULL,
    below xid8 NOT NULL,
    signed timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

--
-- Name: kept_calls; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.kept_calls (
    agent text NOT NULL,
    session text NOT NULL,
    tool text NOT NULL,
    id text NOT NULL,
    receipt text NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    expires timestamp with time zone NOT NULL,
    body bytea NOT NULL,
    signature bytea NOT NULL,
    data bytea
);

--
-- Name: kv_entries; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.kv_entries (
    scope bytea NOT NULL,
    key bytea NOT NULL,
    value text NOT NULL,
    expires double precision
);

--
-- Name: kv_sizes; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.kv_sizes (
    scope bytea NOT NULL,
    bytes bigint NOT NULL
);

--
-- Name: kv_writes; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.kv_writes (
    id uuid NOT NULL,
    answer bigint NOT NULL,
    written timestamp with time zone DEFAULT now() NOT NULL
);

--
-- Name: leases; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.leases (
    id text NOT NULL,
    node text NOT NULL,
    owner text NOT NULL,
    expires timestamp with time zone NOT NULL,
    most_calls integer NOT NULL,
    amount numeric NOT NULL,
    number bigint DEFAULT 0 NOT NULL,
    calls integer DEFAULT 0 NOT NULL,
    spent numeric DEFAULT 0 NOT NULL,
    CONSTRAINT leases_check CHECK (((calls >= 0) AND (calls <= most_calls))),
    CONSTRAINT leases_check1 CHECK (((spent >= (0)::numeric) AND (spent <= amount)))
)
WITH (fillfactor='60');

--
-- Name: ledger; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.ledger (
    one boolean DEFAULT true NOT NULL,
    id text NOT NULL,
    key text NOT NULL,
    begun timestamp with time zone DEFAULT now() NOT NULL,
    gone text DEFAULT ''::text NOT NULL,
    CONSTRAINT ledger_one_check CHECK (one)
);

--
-- Name: places; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.places (
    number bigint NOT NULL,
    hash bytea NOT NULL,
    agent text NOT NULL COLLATE pg_catalog."C",
    session text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL
);

--
-- Name: reservations; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.reservations (
    id text NOT NULL,
    agent text NOT NULL,
    session text NOT NULL,
    tool text NOT NULL,
    day text NOT NULL,
    calls integer NOT NULL,
    cost_usd numeric NOT NULL,
    session_calls bigint NOT NULL,
    session_cost numeric NOT NULL,
    tool_calls bigint NOT NULL,
    tool_cost numeric NOT NULL,
    day_calls bigint NOT NULL,
    day_cost numeric NOT NULL,
    batch text,
    made xid8 DEFAULT pg_current_xact_id() NOT NULL,
    ended timestamp with time zone,
    CONSTRAINT reservations_calls_check CHECK ((calls > 0)),
    CONSTRAINT reservations_cost_usd_check CHECK ((cost_usd >= (0)::numeric))
);

--
-- Name: state_acts; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.state_acts (
    number bigint NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    agent text,
    tool text,
    why text DEFAULT ''::text NOT NULL,
    body bytea NOT NULL,
    node text NOT NULL,
    signature bytea NOT NULL,
    CONSTRAINT state_acts_kind_check CHECK ((kind = ANY (ARRAY['freeze'::text, 'thaw'::text, 'operators'::text])))
);

--
-- Name: state_acts_number_seq; Type: SEQUENCE; Schema: licet; Owner: -
--

ALTER TABLE licet.state_acts ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME licet.state_acts_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

--
-- Name: steps; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.steps (
    number integer NOT NULL,
    name text NOT NULL,
    applied timestamp with time zone DEFAULT now() NOT NULL
);

--
-- Name: thawed; Type: TABLE; Schema: licet; Owner: -
--

CREATE TABLE licet.thawed (
    id text NOT NULL
);

--
-- Data for Name: approval_answers; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.approval_answers OVERRIDING SYSTEM VALUE VALUES
	(1, 'y-5036a0de0472329f0051101c', 'a-026fb2307ca1', false, '\x7b226279223a22636f6d6d616e64222c2264656e696573223a66616c73652c226964223a22792d353033366130646530343732333239663030353131303163222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a31356563363466353966636364656339663331373864666233663435663465306136383962336663316364363762333136393961376535326239393932303037222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363038303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x7ba6381a5d09f9f59f18018894d54bf48538c16b9dd4ae2d055606c8bc09755870a02d34273fe1cc7c436b4bcfded6c96263d40c333f1e375016e740d17a3104'),
	(2, 'y-3961217d8c1294a2d8fd58b4', 'a-f6a24a09ca39', false, '\x7b226279223a22636f6d6d616e64222c2264656e696573223a66616c73652c226964223a22792d333936313231376438633132393461326438666435386234222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a32396262343836323332346463383265623139363963396639343238356239313763366235653939646138363262363164336330313564646665646133333031222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363038303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xe855a8e568d3d95cb242130efe870ea34cec21011af82e4db6800b011f97a976f921e14096fc3738259269240bdd4543b6de1123e6d17f235a3ff38d8835300f'),
	(3, 'y-86e38962693716319fb71f26', 'a-a0508003fdb5', true, '\x7b226279223a22636f6d6d616e64222c2264656e696573223a747275652c226964223a22792d383665333839363236393337313633313966623731663236222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a35643436373963633831613966653731656133643265626331613336386162643037613939366363313435353138383663336333646563303665316231396434222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363134303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xe3985adb9c24de85c0d0b729631bc9dd721799be9b064ca9c3e07bace2b3cadce68329516ed4320e41a75fdb6553c40e4f37e881c9fffcb7f5928fdc0886f909'),
	(4, 'y-a8b83e6612a79564dda52d68', 'a-91a62d9dc406', false, '\x7b226279223a22636f6d6d616e64222c2264656e696573223a66616c73652c226964223a22792d613862383365363631326137393536346464613532643638222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a38663436306530613966363831626132323666363835306531323734326461323733343366366363393531303034333933636538323764626230643161663364222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363230303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd010006e9f6df1c58500e33462f2d1e365d1cff9bef372b7deca04689141ed2210023d88cd4042833a9c29ce28a78ee41c9d51b44e199d0a0588296cd7934c06'),
	(5, 'y-da24a901ffa7a780978dfe5c', 'a-eaebb4ad4adf', false, '\x7b226279223a22656432353531393a7744794f6b7170377934472d55783877583674344a6e377132644747323475347a783251746c635f364873222c2264656e696573223a66616c73652c226964223a22792d646132346139303166666137613738303937386466653563222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a65366264623731366262613464306634383639666334383536383161396538303535643265356136623266303039313661646235653531656134356434356461222c22726f77223a22616e73776572222c227369676e6174757265223a226263663062373937616562333435663937353539633637643065656431373561373564346435343230353930366165366239656538323031396537376437316531636535666532653733353266613634323531356135393933353638313131306330333363666639613662393361303239623361323063663762303434363066222c2274696d65223a313737323632363332303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x0889b8bec0fc64542b5f3b5f36d0a48096ec7c29b503e81fdfc54b9d46e24c3396e89bd6780be9813bd7888da6ba0dc3d00356c99a70fe51cce4d2997a5a330c'),
	(6, 'y-1ab6a96e5519857cf5e87abe', 'a-00192dce5c72', false, '\x7b226279223a227465726d696e616c222c2264656e696573223a66616c73652c226964223a22792d316162366139366535353139383537636635653837616265222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a38353965306362326132363831326634626131636330313331383433633432356435363535613830626531633537396163373038346565613266626438633766222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363332303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x526a6142ee4a2229623045b4a594b9ead0988d8c5fb98593b9cd840f83a8636e8c6af76368b1c51a1970330b13823e5e62dc2b99822262d308d7730fae247e03'),
	(8, 'y-94d877711575d594a1a3ad83', 'a-a124a1890842', true, '\x7b226279223a22636f6d6d616e64222c2264656e696573223a747275652c226964223a22792d393464383737373131353735643539346131613361643833222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a61626361616230323639666666653636653862626166386665333333346531346163333931643065313166656238396261333935366132396238396261363230222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363332303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd9e7d23b659738fb02e1787f9e793a3df71cf9c91e371a3fc0f5bff5eb11e85bad8ed04ccafae8805ba502cbafcc996d1e6234ace098c45386483d26f9ee8503'),
	(7, 'y-1243bdbac7ea09d168c760a6', 'a-a124a1890842', false, '\x7b226279223a227465726d696e616c222c2264656e696573223a66616c73652c226964223a22792d313234336264626163376561303964313638633736306136222c226f6e6c795f74686573655f617267756d656e7473223a66616c73652c2272657175657374223a227368613235363a61626361616230323639666666653636653862626166386665333333346531346163333931643065313166656238396261333935366132396238396261363230222c22726f77223a22616e73776572222c227369676e6174757265223a22222c2274696d65223a313737323632363332303030307d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x');

--
-- Data for Name: approval_requests; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.approval_requests OVERRIDING SYSTEM VALUE VALUES
	(1, 'a-a1273af4a986', 'sha256:95a0caa2d846d56abcb96a9e2c241c0b43acc40e575bbb2ea182bf6e42533261', 'desk', 'main', 'call', 1772452860000, 1772366460000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a336235363562336132616139323735383064643638613061313064333331383264636162646439373435356434303263366238396362653465656164323761375c222c5c2261736b65645c223a313737323336363436303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323435323836303030302c5c2269645c223a5c22612d6131323733616634613938365c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2232346435653634373536386136306331343538636331653537633636343434365c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a35343761366130653362316564356434343063383836623865316235623932653239643864366539363330306134343731636430396266646463636665616437227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xef3180ead4fe4e1e5e43cf209032f1e4bc4638e3201bfb95f3d5e101e3f7aa0cac86acd553ea6b79d7487bb4b9a502c73f0ca029ed944312f5257a897ebc6403'),
	(2, 'a-01e59f3eb9c3', 'sha256:3a7b2ed03ef0398d12b8b0576ef7429c3733e2069cdb2a0738315acc8f7cb428', 'desk', 'main', 'call', 1772712300000, 1772625900000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a333165636537326162643865646365373366643734376233333762656462363737633866343931386134633136333437366138383437376264643733346463305c222c5c2261736b65645c223a313737323632353930303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323330303030302c5c2269645c223a5c22612d3031653539663365623963335c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2262373736376636323765623261636464323935313234613930333862393731645c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a66303962666530303263653638366339326131656539633635376237313032663038333365643763316138626632393835323337363834633632643962623761227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x39d5f1ccb1f7650fdaeab21d483f93aa23755adb4885835a7136afc9ae8f424d7b1a1debc5581e31ec75a172f82355d9191493798976c55680e1eddad94c3c0d'),
	(3, 'a-026fb2307ca1', 'sha256:a98fe3ba06d3cfd72b7d054dfe4d748a4677dff23b32022580ee5a108de3619d', 'desk', 'main', 'call', 1772712360000, 1772625960000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a656539386639326364663931336438343336643636666661303631353632653034616334333237353030343635393430376266613432376566616335643532615c222c5c2261736b65645c223a313737323632353936303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323336303030302c5c2269645c223a5c22612d3032366662323330376361315c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2262396631313165643531373530353561656438336238386136333038363532395c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a34646531393164363233356361386661636235623538656133663232393335336661643165633666643865336238363733663162333237313031633861646534227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xec77ff39a7193f3ad3ddf08d05919fc2ae7142368891bab30b5404fbdbb8b12ef36d5290873a3cf0458e2ab019f72592e1af09dbabccf313b913931eaea5a102'),
	(4, 'a-f6a24a09ca39', 'sha256:0c913b756382426ec27a208efce2fd9ae1777083bd2759168477a47b302b32ab', 'desk', 'main', 'call', 1772712420000, 1772626020000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a303661313763613730623431356135346630656335336231343663636136613730356364316435663237373563643633346365363635646263396337323765345c222c5c2261736b65645c223a313737323632363032303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323432303030302c5c2269645c223a5c22612d6636613234613039636133395c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2236666231363438303532643632373236646566376666616536386262363165665c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a64613434656461336164323861366435303839663430396631303238373030646566376161353964666137303133323930306133363335343037363863316230227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x9642aa79fc8901e18d45bd65ddf2de794ec640ea1dfa2e4e65d63959a3c26821acd7867b795ffa930d8f541f9b882b4c2812b1e945876abf5c81c3e17cdd770c'),
	(5, 'a-a0508003fdb5', 'sha256:fb62734b9da2eb61fc12f882e5bd94fced1ba14ce5419926cda3ffa7c1050bd5', 'desk', 'main', 'call', 1772712480000, 1772626080000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a323534333438326434363334396362636662623266653862663635653565393234623666306339363137323235366139663038376537336235333465383233615c222c5c2261736b65645c223a313737323632363038303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323438303030302c5c2269645c223a5c22612d6130353038303033666462355c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2263333265303638643163336264643566373665363365303938313463313066635c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a66353333356437313732383662383434306534336561633832333437386566633636653165353036323631343065326231393630626538393634303533623236227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x2cb7266e5191a2c74e58e55790b3270990af7404aabe382863f5c4a8c492902980dfd89975053ab0387ebc2618e9951f2cabc36f3e2171d59800a97b762f2309'),
	(6, 'a-91a62d9dc406', 'sha256:8d840fb6537c1c4dcef7ae532b2549e676ecf61bb843149b4e48b14aefb476f8', 'desk', 'main', 'session', 1772712600000, 1772626200000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a626665363334616463613630663038313139663161666666666535626435643366653639653965376538333465643030373066346162653934346335663730305c222c5c2261736b65645c223a313737323632363230303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323630303030302c5c2269645c223a5c22612d3931613632643964633430365c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2265326266626330613338623930636330666435623339376131393766376333655c222c5c2273636f70655c223a5c2273657373696f6e5c222c5c2273657373696f6e5c223a5c226d61696e5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226a6f745c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a383337396666343836373063643331326265623234643639633662386236313837396536323866343339366533386135353835303162316666646139343832655c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a32363935616132663130626562373264613437663265633239613336643930326231366563626638396431353831336438376162356663396132303139313963227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x65e6ae9c199f69ab82c0fd3a1d3a3682e831a1b64398b02774dcf42c2eaf155c4fd38b110da91a5e0c9f490efab663cc31ee73e4b968c9f9b304787d5d52bc08'),
	(7, 'a-eaebb4ad4adf', 'sha256:4b412962171b3c3eff204fd5c1cdd319fce764bc09f28af61958d98739a7fc01', 'signer', 'signed', 'call', 1772712720000, 1772626320000, '\x7b226b657973223a225b5b5c22656432353531393a7744794f6b7170377934472d55783877583674344a6e377132644747323475347a783251746c635f3648735c222c205c22616c6963655c225d2c205b5c22656432353531393a706874696d34476646574e542d57494848304864464b506174347276654266675a634a6b7a6b2d6a676f455c222c205c22626f625c225d5d222c2271756f72756d223a322c2272657175657374223a227b5c226167656e745c223a5c227369676e65725c222c5c22617267756d656e74735c223a5c227368613235363a366662653132323434323339346438623134643338356131366636326265656233323537623637613063633431363436303637306465633634653266623265395c222c5c2261736b65645c223a313737323632363332303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731323732303030302c5c2269645c223a5c22612d6561656262346164346164665c222c5c226d616e69666573745c223a5c227368613235363a633261633030643465393738616663306364643037356637613663626336636461346330366134396366653664663335313936343235616363313730353065655c222c5c226e6f6e63655c223a5c2238643264656536326536336131376636336365666266356437646236653338385c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c227369676e65645c222c5c227374616b65735c223a5b5c2266733a77726974653a2f7372762f6e6f7465732f6f75745c225d2c5c22746f6f6c5c223a5c226e6f74655c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a636130393538326465653136613962333836333061656165623837336632646632316564623335363335383639336134373230636432663737313635353865665c222c5c227573655c223a5c225c222c5c227768795c223a5c22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a66633133306136306465373632323631316131393235383264366563306232663334393133366435643162376361313232383739313965656634363365643265227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x2325800627c9141631fc5fcf1c16d13caebe4ff259c3dce3115bde6e5d1b2d46e8e828c565a07f1de41bcbfc02848a24937e8ffd18187eedb3614baad3fc0309'),
	(8, 'a-00192dce5c72', 'sha256:18e24825b5ee68f21961476b351433b09627df0982dedad702f6b77c57256274', 'desk', 'standing approvals', 'standing', 1775218320000, 1772626320000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a343431333666613335356233363738613131343661643136663765383634396539346662346663323166653737653833313063303630663631636161666638615c222c5c2261736b65645c223a313737323632363332303030302c5c2264656c657465735c223a5b5c2266733a64656c6574653a2f7372762f6e6f7465732f6f75745c225d2c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c225c222c5c22657870697265735c223a313737353231383332303030302c5c2269645c223a5c22612d3030313932646365356337325c222c5c226d616368696e655c223a5c227368613235363a623234383037306538383038666163363962666666363135656631353631313131313565386539643635643831393661376639616266643539633763363639615c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2234333365623365633134396162616435353565656139366439356266613961645c222c5c2273636f70655c223a5c227374616e64696e675c222c5c2273657373696f6e5c223a5c227374616e64696e6720617070726f76616c735c222c5c227374616b65735c223a5b5d2c5c22746f6f6c5c223a5c226c696365742074727573745c222c5c22746f6f6c5f6469676573745c223a5c225c222c5c227573655c223a5c225c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a63646232323933663837366532383738363636353962386138653933613863633762303037343066353331353761386136376264643439663563333464343763227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd00c2edd6f5d42425bed00bb6de8770e99ac53919758877d2a00187c98c0fe8dedb32d46a54c07eb30d3c0dc157d82ad1a7f9eaf3e53b30a01e0dee3a9c5be03'),
	(9, 'a-a124a1890842', 'sha256:18e24825b5ee68f21961476b351433b09627df0982dedad702f6b77c57256274', 'desk', 'standing approvals', 'standing', 1773231120000, 1772626320000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c226465736b5c222c5c22617267756d656e74735c223a5c227368613235363a343431333666613335356233363738613131343661643136663765383634396539346662346663323166653737653833313063303630663631636161666638615c222c5c2261736b65645c223a313737323632363332303030302c5c2264656c657465735c223a5b5c2266733a64656c6574653a2f7372762f6e6f7465732f6f75745c225d2c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c225c222c5c22657870697265735c223a313737333233313132303030302c5c2269645c223a5c22612d6131323461313839303834325c222c5c226d616368696e655c223a5c227368613235363a623234383037306538383038666163363962666666363135656631353631313131313565386539643635643831393661376639616266643539633763363639615c222c5c226d616e69666573745c223a5c227368613235363a343863386138613766383166643332313436303965383563616365623432646262353264653638643536636631396530626663376630393261633566343734355c222c5c226e6f6e63655c223a5c2263303434383038366239643162323566386365373363343532316534306239645c222c5c2273636f70655c223a5c227374616e64696e675c222c5c2273657373696f6e5c223a5c227374616e64696e6720617070726f76616c735c222c5c227374616b65735c223a5b5d2c5c22746f6f6c5c223a5c226c696365742074727573745c222c5c22746f6f6c5f6469676573745c223a5c225c222c5c227573655c223a5c225c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a63646232323933663837366532383738363636353962386138653933613863633762303037343066353331353761386136376264643439663563333464343763227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xb1a56b414619734b67104cf637a6ad09b0158fbf1f5d32bc7707d9bb82727dab2302fa62df2afe20ca58e814973c265789a34f5353faaa49870f994e569c0707'),
	(10, 'a-bd3a08494afb', 'sha256:cdf1d7df41fa67f99a1142a4b2c986ea5efdbc30bc5cb4d6902f80fbfa26ec95', 'assistant', 'mail', 'call', 1772713140000, 1772626740000, '\x7b226b657973223a6e756c6c2c2271756f72756d223a312c2272657175657374223a227b5c226167656e745c223a5c22617373697374616e745c222c5c22617267756d656e74735c223a5c227368613235363a663066376463633861353963346134643033343336323363383735663762353061346632373330373361666362303436326633666265616164313330653734305c222c5c2261736b65645c223a313737323632363734303030302c5c226469726563746f72795c223a5c222f6465736b5c222c5c226566666563745c223a5c2277726974655f6c696d697465645c222c5c22657870697265735c223a313737323731333134303030302c5c22666c6f775c223a5c22464c4f575f4f524947494e5c222c5c2269645c223a5c22612d6264336130383439346166625c222c5c226d616e69666573745c223a5c227368613235363a623264346438643836626134336632343131346161633861336631653862366436333230623133356362393335313733623437333134336238633131333032345c222c5c226e6f6e63655c223a5c2234363265663232386232353762383563633933373630313731363664313064375c222c5c2273636f70655c223a5c2263616c6c5c222c5c2273657373696f6e5c223a5c226d61696c5c222c5c227374616b65735c223a5b5c2266733a77726974653a2f6465736b2f6f7574626f785c225d2c5c22746f6f6c5c223a5c2273656e645f6d61696c5c222c5c22746f6f6c5f6469676573745c223a5c227368613235363a616539313236383135643263333732353639343236303434383138643133316132613663663361613565303936646266356164643762323666346531646363385c222c5c227573655c223a5c225c222c5c227768795c223a5c2273656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f74653b20636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e5c227d222c22726f77223a2272657175657374222c2273686f776e223a227368613235363a34653564353830313366663763353161353936343539386133636234323137613837326637643337623833356262343734346434326139333337356430303831227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x56a8794545479b17b906a49b573dc2d3d9a34fa9e99f4bfc4ae69e5606217a57a9ead073234fc19fb951b48b86c85ae6532f5d6671f15ecf3cb97834875b9702');

--
-- Data for Name: approval_shown; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.approval_shown VALUES
	('a-01e59f3eb9c3', '\x5b227b5c226e616d655c223a5c2277616974696e675c227d222c5b5d5d'),
	('a-026fb2307ca1', '\x5b227b5c226e616d655c223a5c22676976656e5c227d222c5b5d5d'),
	('a-f6a24a09ca39', '\x5b227b5c226e616d655c223a5c22757365645c227d222c5b5d5d'),
	('a-a0508003fdb5', '\x5b227b5c226e616d655c223a5c22726566757365645c227d222c5b5d5d'),
	('a-91a62d9dc406', '\x5b227b5c226e616d655c223a5c2266697273745c227d222c5b5d5d'),
	('a-eaebb4ad4adf', '\x5b227b5c226e616d655c223a5c227369676e65645c227d222c5b5d5d'),
	('a-00192dce5c72', '\x5b227b7d222c5b5d5d'),
	('a-a124a1890842', '\x5b227b7d222c5b5d5d'),
	('a-bd3a08494afb', '\x5b227b5c22746f5c223a5c2264726f7040636f6c6c6563746f722e746573745c222c5c22626f64795c223a5c2254686520706c616e5c227d222c5b2273656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f7465225d5d');

--
-- Data for Name: approval_uses; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.approval_uses VALUES
	('a-f6a24a09ca39', '', 'r-efc709906eff-10'),
	('a-91a62d9dc406', 'r-efc709906eff-12', 'r-efc709906eff-12'),
	('a-00192dce5c72', 'claim', 'c-4ee7b915c20754b98c9f7d6d'),
	('a-a124a1890842', 'claim', 'c-e0c1f8930ace46dd4d57f7bc');

--
-- Data for Name: batches; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.batches VALUES
	('\xe12f61f0122cb8c1aefbd9f945a2b810', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x6c749b1c5dbb3ed380c6c12fec0b7284557132b653da9e39d6860494e6f6f4d4', '\x5f156a44185a37089c40916312c6ec1c1dfade2610a4e5c721728d20e1802684b1cf77446b87eda29b48356de1d19db01fa35659f35070e57ec0a010b0bc8a04'),
	('\xad41c97e52f3642a323b034ac653fee4', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xb6766594146c440ec6a7aa72041bcc0db818ad8c072abe21769d8a7c4caea864', '\x3ee9d35a0cb4cbc047e16183092d28b1185ec36a803202f6ee1021492524ac57f75597e42c8aae9035e95830947f365c8f5863c3afee9a4f7a3945176bb8ce08'),
	('\x21924794aa6e32bc9b0b25beb26f5411', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd4f6b946aa15b405cd303080abe78000c173479d8b40f8b859d9afd2c4645248', '\x0d0ec27dd1936788a8a2e5dc89f50fe63151ea73b5b3dfb1d232cd1a5837772a99a60d786840525c4db3dcf162d2e6791d11d49ec5c7e1384cd34580da52370c'),
	('\xb76aa2d1c9c4e07f972db6843f6da9c6', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x356af9a3c563b53d8a57d281b1f89a2696f0e953dfc0f44be0fb9beed54b0d03', '\x74a8e1ff58f179232289fe9974c9d8ba5d7c8b1a98751690aa1901771e732647c6a12d261ef7b683e86ccf02175861db0be5e4410b10340dba7b674cdccb8906'),
	('\x5afb6becb200db876f5e89e60bfaafa3', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x450d64c7bd437f07533bf4e856162bf592d308b7dfb7546d3d1e7b3d25047e2c', '\xf330e71999e2472405231ab816d4c7744cb1d7bb893bcdb2c38dbf87d76f2b25a6019145a6875f87df46270b01fe97316d9825300bd40a17b5621aa6e119c608'),
	('\x4367b4afba06b23132a72f0538e2d004', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x8686d75917c0c41d7179a56952477fcb2f2f228dfe6b422215611ba50db582fe', '\x96fff4a156e5e4e4674c1e989a3709326b2d31a55e225c35457cbdab8b7008b7667494195b0a67b26512ca2c452477957ddb16fd542c1e90f0ed33dc3a7f0e04'),
	('\x862845edf15d77e6ef61af1bf828358d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x090f4a5f5c27a592e7ce9633cbc2dea621f3a040f8525c16ae82255b52d3dbc3', '\xeba86dec6f49b4ed9148a7577af3d2d5d8bd34ea5f64249259d2d31839a67ccb17ca68d23babaaa6669faf9176c68927de65eacc04717f653553c5fb9d423f05'),
	('\x26a3502551b338d745bd0b38089d1cee', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x8a90f3596286b4cfb9a1180f0d0059a44c25517d5a02e16229ee2a5f3b7485c2', '\x9d7a2639ae8282c82a9a5a0c9fd189db037980be415469528ecdb6ae79ae6c5c547e8f03f94b23de0ec668c5802a5c75f0a5aca552d513fbd92f1e38acf1310d'),
	('\xcb941becf8b3c5046ec841012c678b3b', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x02fa07c5b0973f2fc2b98e925207d82fd2f7b051505d4611ff3e956159e5d308', '\x9f7a947452864ed96e7d432fe961ddef700801b6a14de82e20e8ad5a3b643cecb837fbba412b701a5728f1cd6077477b6267cc1b0824ebfacba0ff3092acf303'),
	('\x53c33bf0e8433ff37c41725cb70b708e', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x579e71891c3a62c30cf89b9574791e842e5731105341c1b5086aa914fa8ddb61', '\x06c6282d72cc9fece5f19ead4a7452e02d970e3c502b1a7fae9d8439a14e2e00695879a5b4cb5b6a87dfe208cbe32fb40f02a4bf4d1847649e805d5c2fd04c0b'),
	('\x0d6c648d575a57df848ef088cb43bf6d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x9397f25349a4b7c39a2a4be4b5b46cbfabac270df49bb620bfb41ffd9209592d', '\xffb0c859e92ab8246c3ed619935839feb7991a9d6ef06aba1081b6d25292a3ace54dc561b506aa7f6a328f7db9da8782be014d56f54718b81ffea15b95451c08'),
	('\xdb7e21f656faa1e0c17ca83612b83c6d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xeda36cbf92d5bca7507def03eb1b8691d74141cce2b9ccb71b3f299dfe9574e5', '\x3afc27848b3a116357ea27355a1e91645573205c0326ab20cadcb863c5b527be770d1721f3885e49defb9abbd6554c4129c8ce4451b293df58f2deae4636fd05'),
	('\xa52baedf9f360c0c6ef39887e310f878', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xe7463e52ac4009932753de494c5b787caa84621ba9f2b1d4aa9466854cf3a2d6', '\x1d857888c6e1227484a24b1a22c476e1a70c3579bfce59766254ec4bbf4032f3a08c8eef45c0a2ccf59f7f98525d4f64144329a4001eba86be4360fa3fccdb0c'),
	('\x3093c9947f661cd46b8d98fb7c6db11d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd7f6337fda6d06d88ddf980477ca634d2985d4f6c69e67a2aaf3b33a082571cc', '\x2780c7f78cb8dc11b91ca7c7ac793203e34c2e276c36d498d1ab2df79b3c10ec6381c78b259aa81ba550d6fa4e6d00078f4155f606aee3920a231c182db6aa0d'),
	('\x0cb36965ff96d2ec5369d97917a42170', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x50638652c6c833a127456a7780687e9d65666d08ff9a2f89fade51020e840369', '\x7e418de227257ee65acd31a57754bd4406d0803705b2a3c10fb7c36d7eba901a0b1af0c67759025696e5be9a4f26fb71512b723c6fb98c8b809477867805bf0b'),
	('\xe862a55787ea701ce420720e7d5515a6', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xf6da2a2550b26583227a23072217b1d5d723adc37106ba71021dcbf6a30d4726', '\xccbeb8e466bcf04d36a49590a846952776142548a6280dd6833dd5dea8655f45ca9fdf3ad37df619d2e0c55247839f4976f2c7af82739b410c6ba75aa158b606'),
	('\x29e6326e127a262c8282f71b23585b81', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x991de71585a90dfc144b26eef961df7bb87305788c36da5152617502220f900b', '\x2be5447a0993f57bec6cacd3528faaa36c40920a6fa3808ca029a19a9c1c2d1cc280518485f0aaf27af58f69bfb3ce876caeebc548faac71fb9ffe159736700f'),
	('\xa6875ae8d6460304fd93ac95925d16d8', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xaca519a8c2bd33efd7d01a0f0538a8f7cacb481f94c6221d47fd43a4316dd1b7', '\x4377dc64cb98c5203f56c363f208ef61a0da7ce52fefae6876201957c892b33f5e59a853307196319602dbc601b0b628e7e2ba8d1ddb2de11d63a32763723c09'),
	('\xa51b95058a81ca69918fa7513c51e5c0', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xae5adfe1af0469f1a55c4b216d39adc58b6d2e6cf1745f467bff5e24983790e5', '\xfbd5c5ec1b248bdd1d1efab4f530e45430ddbd473fd28a7b8762be5e081b88a7a4368a747ba1857ffd2c08ac1f3ba8b66f5884e172a65689e2a5e5b45118120b'),
	('\x3d6d3bd174a2ccadf373019891132fd4', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x229fecb9f026d1b909505563749a3096517718a99e9abb5a455d6a876ddcb6bd', '\xf51a16476585a241d95978200e43c2be14b1a3f9ffefbc9b72f4cc6eb3a9ed8bdbdb93ee2faa5bdfa09961fb5ce958dc256741e7609763b85d9a6bfc55c6590a'),
	('\x6274bc3925adc0c7a79e89eaadf7deed', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xdc221fbc8af4f641a507ef6d5726d43c4944049912d2743e6a877f271aa1a399', '\x0810432bf8fe90ff34f88a1b563393a2e435ac02fa23f9d2d6852986a7f34f91e1f228838e6d7cbd002c3586dd4a1d6f5946ecf61612a05f6a46e01e0974c707'),
	('\x030f5469068a87c231572cb90fa94c76', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x396a0922241dca94952dc1f44b80711687e0ea0b0ae9de27794e55133632e969', '\x553feca740815e3ea7b147f4def8ebfafaa9cd473f3032037a246affe514e4c3053a5e4e0cd0e6f89f52cf5b23a82e76da8a3c17ecd077a50646f490c490db09'),
	('\xb271da1ffd899517a38df183347c6833', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x4c4fdf5ccfa3646e773bb5d49012aa2709e3b087ce424385622748eb82d564d8', '\x52f13f536741b265211823c19da108a18aa93e7aa4e5a7c1014bcb6d29578da42f40a3f1378701b714568c01ac7e655bded2a11187133075795d0d66e6e0d30a'),
	('\x2293c22d4313d5b853195df1d1b226dd', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x2af20ad2eb80ac6ac681bc827bcb46fa97de57e014cb4d0adbc2e19b4bededf6', '\xc55332c79d544fd1481698bfe47df5bada756b171ac5c5b2046b9c14ce3eeb897afcefeef8130464cf6b2f78097b2b08e84da06b130ba1e096b6a1462fe11803'),
	('\x210543ec886836cd881779c5964bba84', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x190068f077be5e0fb200e52c2df809c91f79103e15929bda6dad5d03f4bafe3b', '\x85f177c1bd0d81e32455ad90ec72ba400d272d1fc60cd6811abb680fd47f845a685dab335f55aa45a1690209250228049014486152e39f10a7aad1beee146805'),
	('\x961ce56dd1a1838441ac13dff9aebae5', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x1403e72d68223597cb6208e9a099a353e2f04beb4251011202bf3ca5a9e90c13', '\x75bb3d4cbfa5fc9e36c0884a09cae028a8c261032f1bebc6397286729a7d248b4b5b3be9fda7d9237c87a7308d1c7ec85adee4e4903f006cff9514b087b0340a'),
	('\xcd700b861e7fc7efaf8210d895f7a3db', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x489bc234d59d694947f7d341c3abc6a95e8ab6162e026b6999780e27ca3f719e', '\x0845e071c41d9d0217c92b18ae288fc852893a48059c884ee9211b1fb1334e73593bc1e482a07095cd5dbae88e22160057f294b3c9423ca2229300f87404b70a'),
	('\xd912a2dcb9b5099c0b59f4921eb04d71', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x8757fad0157a1e66a1d11a9f29ce0ab85048adc5bd824da218dabe515ffb70cf', '\xa87d3ac4ea5cfbb784abca76e01a2829f6fe3a6a77ff912f2afdc1dd5aa86d4d80cd33aed3310ace1777bd1f97dd9064d3a40b6aee0c733c1572c2c86bd21505'),
	('\x859637fa7adc0f5d7a56c6f93641afd9', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x648adb8fe3030d7c2b1f873630254ea439bd17c8f6c2ca5fe377324dc1b67915', '\x705e04736ec0a37f47033bc9e0d8c11d9dba1c3704be73d9e9e386bdc76238923de67b0e218ac03b0d97135a2425c7df366a194ce0821ed48a739ce0588c6109'),
	('\x07312eaf3880a26cf3de80aba00e4653', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x2650c838b9c117b9e39c45477e64ef91aef87e3e67e4fc27eaceaf050c737b23', '\x8af2a412b3db76f9978ee3c3df540637079acf34d1c265da4f1ef3ce9ba5bbb239db12fd76c13e47b67e9145adf1604c777eab429f9f7a8a528e41782748b404'),
	('\xbe836757e376f9fd35af0faaac9396eb', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xdef2f79a8ec2d5e372a089c1520f5ea836e868f0bbc60c3386c1bb5f03a388a3', '\x1813aed2dc19cbf45904d9c95470d389c7073e8191a82cbdd5e05b2ced25c8685a942f101b3cc9d1f591bd0067760ef0f55908911735782b7b1565ee07caf003'),
	('\x8e6375c09d8685fd0f5536c9b1d1abe1', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xd4bc5929022001900ad56c528ba4af0aa286c6ddd7ee2c0597f688e51a11ac46', '\xba157794f74ab7285408c2d51cd4487f3ceb5f9d393c246d3f41523a11d880e47f40c54671a11cf50c7b5a15e8dbb83e66d7b19aa50f96332e77ee67cb44c60a'),
	('\x2c0d479d1cd842e6f6a58e3ac2c7bd9f', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xacad3cc9e9e13f9e97f0ad5a87407399a221521e29aff4153bce269cbb232e7c', '\x0de3c9ffb11bdea1e5dff177f4217b58fdb439ca0bbaa0866560a705d83b4d07411b50823940f3e565e761a8a03dac82431f8d867be92c2ece514c4bf7c1dc06'),
	('\xcae8382e181cf4dea0746335dc25c3ec', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xf72bd98f209e8ec45b7a9b9059d4e9b80cb7badc162fdd7e047f9b93b791bb50', '\x81b14f9e0b0e7f265c125c298c2957bbdc82608e4777236b675380e65f8c2bff6b2b6296951e61b5eb30615a9fbcc3e1eac90774cd04b655337a692367797a0b'),
	('\x86eaee789bcf67c8da1099902e2bf2b0', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x9a89f0b738702d0e851ed1916cfba49eab916aaf49d89daccfc2c003df98a958', '\x63ac7c72a3dbe02690f1c7014ea915af445c1712d2e2d5d79095eb408955c87ecf70196efe61274e481898f981b66c6464196f059b439433930a0fcc86eb9404'),
	('\x4125e71f2cf0b4880bb61621a99a0689', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x935e119908ce591287b24cde2a7fbcbc3bf50931e3e8bb3ba790f670365b7008', '\x43e0a100794fe053bec26c291681c8288b834be2c2ecd29c01d6a922e2aae69f68940f923d03bae2837465bc3d084998e7db68c562d1a7e3a20e3c19ea58860d'),
	('\xa32dca3e91af931fe0beaf555deb99ab', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x18ab6b2bdaed7dec9dc845cd9c1987fc8924df6e3476508230116211ba72baf7', '\x9e6f5b2acf7f04c5905239e331fc7fb1dabd24b7ff285f76a7e06e12bcba0420dac40990908b49241fef7e81eece3d86a774c80ecfcfe64089d2c28afa30630c'),
	('\x010af73edf00bad286990c32cf07aa77', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x3c208711a51b6aa1817f78d061798a4d2932a94f6968060c6a1386b5f9f86f8d', '\x54454317ae674ea2c465f8c750fdcca6b1727e514145bd88f0b37e6a3b99364b1df071e6644beea39f7492c10ddc0a1ead8c4c7ad9912798065cdae74f16680c'),
	('\x824aba715ef650c90febf91565b39dd4', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x7a08599b70ffe8a9636206f898d521bf3ae427a5483ad0b72f463741840712d9', '\x58a12982a9bf34036d43ed474c6b4ba3d962f44fd9be25a992394d87858b6b8e1f1b9178b5b422ea12288dffabe9c9aa0068069e5eacde4ccb56d00596a14c0d'),
	('\x4c54412420e89e5b45ef1e563d3d904b', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xf748708fec4c0e033dd34ae7060ff1920e795dccd5d2646f4afad32f7f429e8d', '\xdaff56dee268b966cc3e0ccb07ca6ecf9c676c8fbd591e654c4760b7f24aff86675c68507064bd39dabef78878dad4b2b3c0fe8b28a44632fb9f8b6c99255604'),
	('\xecc786322c52db21c9b0f6ae8412f97d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xb440b92e52d57088d0eec62879df7fa046e18183bd46456cd4073bfddcedb05c', '\x48dcca5fa4692e7a0ea4848caa21040687c0814e2760a03d3956dcdb498b8935ac053d45d79f78a15888ccc46f9284e8ec239adf393877673083d954ae24140c'),
	('\xfc79ac6cd79d4674aae3bf6934d4d627', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x3b8668da7cfcaf20ce46cf10be31b036b84faeda9a461996fbf35df15fb41776', '\x929265ea1a6fd27ce05ffca90b1962c60f1f61f252b4ee1ec37a87890a0a95603df914d06c6047aa7e9392179681a08d658ddbb1bc5f778d9db14c3c7c763c00'),
	('\xe27f04966fb428d8b77d1b3071d7c218', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xccb79e73b6f9e2909711bb13a17552bb1759c49181d72813488119d4612fde85', '\x0224fe51b51c9ee277d0977cec157222826e1ec5f418f7b8779e3a6b2d693a38f15cef0bc8edf856f7731d616d6d4a92f8c6359820c15996de4b3ad4f16a6b0d'),
	('\x5b97da4dbd506841ad118cbb34f75f0c', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x545071b5a023fd1c30ad881b18b172793cc703e0015e104e8dc20da4363e9370', '\x4a5aba51adc3c488171a6ceb415f27d1b5593a4b736ad9c3ce2cf3a2a85e6fdd94407bd89d9f97baba231b2c8f9eae61d3c6a5ee52b815dbf3359a4e277e3c0a'),
	('\x066c3a7368d767c55f7d011e37877f28', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x8415064b85e72446bf0ede47567f8bac06d8ed031941e02cba3d2a7efbcecc1e', '\xe635b980648183d7dcfc737e4e8bd9e9c1cbc9f6e8a318f93796eee40b1c4538436fcef3c9b3fda6ba56394036089d56dc1223385896dadb4db41be19d85de02'),
	('\xbb4fd9f0b8934aeba2f6b652a97de135', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x29faa86fd8bacae2fa5d09fa7ac1627b3d5efbace2a64886ef4c5f4a4789f3cf', '\x6e18e70d176a360bdbc4b75218c59d219e817f5d01e01c599caf05b99ba353f9ae0747820035b29cd3414d06d39465ab457a5038e3a5e9c35eeae9c14536ea0a'),
	('\x7ada2f752e1c35d75a222eda2c845b9f', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x534ee43e2818d7ce14cb2801b33e6efb71c8482e83cff404a8f5d32ce2ab95ac', '\x415a45bd16ff1cb045fa14a2e0682b8ea6eaa07e152144d96d1b2ef23fa3679252bc4f977d257cdea26341f37a7ee569c5c9236e0152d839911f140d9116b801'),
	('\xc678c9ed2db3cab2e86416442f1e2217', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xa6d789375860c7d7463718cba50c068038adeba173ca10d46439ee6e01fa03ee', '\xdddc056dde971993528e049771c7f68ee0e113a9f25df514585e9f59d3ad115094f8b8391435a1836f4c75a370a14a3c780f1a1c66afbad6c89dbf2258b6d601'),
	('\xd57987453a292209b1b0d3584f6f5d86', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x53189b80f67b9266c250a4e803997e00fc21a117d7625227643fc623320c6718', '\xa55e48148a32039f4de167bab7ce2413df17342f8a12070f7c61030f3dd54a4c5e5f42eb8b4ad6536d25c22bb4c4063b33298b32132471e4b08a6b9a69a51e02'),
	('\xbcc57feb1369b7e605087d5e6eaf2ccc', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x1567185a3f5709e4c8c807c0e1c1d800b5fd8c792588f63cc203f803225c703c', '\x5053d8fa50d5ef9a61341f1d6849ba22b3b36f13122138e87955cd7290ff48bcf8db6ca35467ff7e2c8cd2288f19b8d8812286840e7d7852aa6340416795d009');
INSERT INTO licet.batches VALUES
	('\xca7ea36f1928ca52301091d2eac90c84', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xc637cf930d8cd80160e31c04f493611672d82945e064ff4052beb679fc245458', '\x20fc0ac4493d3caf09505f347c217ca340b87d41483d1f87519d96b94feb3ca1e470a5b9f83ca0a1201a483a577056913f3437df48cb0f479c38ceb9000ae904'),
	('\x5115cea7307a06d4a8eab5f277f5e8e2', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x6aadf04caffd58f8ca00bd030ff3e608ecddd978ef9d040e660b356a2c49f2c2', '\x0c32690443296b2ef4dfb200a6bb929145652645277ab11f93c0f9ca9ac52bfdf708c6acf9d5be261739edcd8994f56e686bcc478e46d5b7181c8311e0ed070b'),
	('\x0018d5aeee27f611717611a903db7306', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xb6836b2274c03466c6788492b3d84fcbf7f4708c4778fa05f5ea542b3a0a1bcf', '\x95db2db2e2ea76979c811f109a8f29150120134963d7966e37ee925864f39923eeaeadb7dd00423167a3fef6ebaefad05943b98e14daea325816a2aa33c2da0a');

--
-- Data for Name: budget_batches; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.budget_batches VALUES
	('b-ea0d6b7e1f50e1a7c72a4ab4', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x5b5b22622d656130643662376531663530653161376337326134616234222c226465736b222c2263726173686564222c22706179222c22323032362d30332d3034222c22302e3235222c315d5d', '\xa612a04af1e0b5b30d5aad5dd9f1b10ed45338c7511638e39d0feb2dd5e3edb969738aefaa381700cae61ec6003530e65500c77463c862469eefe9ee3e322503', '2026-03-04 12:00:00+00');

--
-- Data for Name: budget_counters; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.budget_counters VALUES
	('desk', 'tool', 'main', 'fail', 1, 0),
	('desk', 'tool', 'main', 'note', 1, 0),
	('desk', 'tool', 'main', 'jot', 1, 0),
	('desk', 'session', 'spent', '', 2, 0.50),
	('desk', 'tool', 'spent', 'pay', 2, 0.50),
	('desk', 'session', 'crashed', '', 1, 0.25),
	('desk', 'tool', 'crashed', 'pay', 1, 0.25),
	('desk', 'session', 'kept', '', 2, 0.50),
	('desk', 'tool', 'kept', 'pay', 2, 0.50),
	('desk', 'session', 'main', '', 6, 0),
	('desk', 'tool', 'main', 'look', 3, 0),
	('desk', 'session', 'counting', '', 1, 0),
	('desk', 'tool', 'counting', 'count', 1, 0),
	('desk', 'day', '2026-03-04', '', 13, 1.25),
	('desk', 'session', 'over', '', 1, 0),
	('desk', 'tool', 'over', 'count', 1, 0);

--
-- Data for Name: entries; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.entries VALUES
	('licet', 'nodes of the state', 1, 'n-f487f4ca6a34af4225c58124942011de', 'enrolment', 'licet', 'allow', '2026-03-01T12:00:00.000000Z', '\x6c749b1c5dbb3ed380c6c12fec0b7284557132b653da9e39d6860494e6f6f4d4', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a226e2d6634383766346361366133346166343232356335383132343934323031316465222c226b696e64223a22656e726f6c6d656e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c226e6f6465223a7b22616374223a2265794a68596d39316443493657794a6c5a4449314e5445354f6e564f583246466157747357564d355245706e646a684e566a6c6d5230387a56323552625539304d32786e6257686a62456c5763463936543030695853776959574e30496a6f695a573579623277694c434a6d62334a74595851694f6a4573496d786c5a47646c63694936496a55785a544a6c4d444e6a596d5930597a6b305a5445784e5751784d4749784d7a5a6b4e5745774e6a557749697769626d3975593255694f694a6d4e4467335a6a526a59545a684d7a52685a6a51794d6a566a4e5467784d6a51354e4449774d54466b5a534973496e5270625755694f6949794d4449324c54417a4c544178564445794f6a41774f6a41774c6a41774d4441774d466f6966513d3d222c226279223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226e6f6465223a22656432353531393a754e5f6145696b6c595339444a6776384d563966474f33576e516d4f74336c676d68636c4956705f7a4f4d222c227369676e6174757265223a22787167734849547071353958664c434d46337454467350646562787a61355831456a707a67576c41415363314f59786857517365344a633651416e54526650527443346e6855482b34714159632b69454144763242513d3d227d2c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226e6f646573206f6620746865207374617465222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226c69636574222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xe12f61f0122cb8c1aefbd9f945a2b810', '729'),
	('desk', 'programs', 1, 'r-1-1', 'decision', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\xb6766594146c440ec6a7aa72041bcc0db818ad8c072abe21769d8a7c4caea864', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a22746f6f6c3a63616c6c3a6167656e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d312d31222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xad41c97e52f3642a323b034ac653fee4', '730'),
	('desk', 'programs', 2, 'r-1-1', 'progress', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\xd4f6b946aa15b405cd303080abe78000c173479d8b40f8b859d9afd2c4645248', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a227365637265743a726561643a6769746875622f746f6b656e222c226b696e64223a224b6579506c61636564222c2272756c65223a226170692e6769746875622e636f6d227d2c7b226361706162696c697479223a226e6574776f726b3a68747470733a676574406170692e6769746875622e636f6d222c226b696e64223a22526571756573744d616465222c2272756c65223a22474554202f7265706f732f7820e28692203230302c2031323334206279746573227d5d2c22666f726d6174223a322c226964223a22722d312d31222c226b696e64223a2270726f6772657373222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a62363736363539343134366334343065633661376161373230343162636330646238313861643863303732616265323137363964386137633463616561383634222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x21924794aa6e32bc9b0b25beb26f5411', '731'),
	('desk', 'programs', 3, 'r-1-1', 'progress', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\x356af9a3c563b53d8a57d281b1f89a2696f0e953dfc0f44be0fb9beed54b0d03', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a226e6574776f726b3a68747470733a706f7374406576696c2e6578616d706c65222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22484f53545f4e4f545f414c4c4f574544222c2272756c65223a226e6f2072756c65227d5d2c22666f726d6174223a322c226964223a22722d312d31222c226b696e64223a2270726f6772657373222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a64346636623934366161313562343035636433303330383061626537383030306331373334373964386234306638623835396439616664326334363435323438222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xb76aa2d1c9c4e07f972db6843f6da9c6', '732'),
	('desk', 'programs', 4, 'r-1-1', 'receipt', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\x450d64c7bd437f07533bf4e856162bf592d308b7dfb7546d3d1e7b3d25047e2c', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a22746f6f6c3a63616c6c3a6167656e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226361706162696c697479223a227365637265743a726561643a6769746875622f746f6b656e222c226b696e64223a224b6579506c61636564222c2272756c65223a226170692e6769746875622e636f6d227d2c7b226361706162696c697479223a226e6574776f726b3a68747470733a676574406170692e6769746875622e636f6d222c226b696e64223a22526571756573744d616465222c2272756c65223a22474554202f7265706f732f7820e28692203230302c2031323334206279746573227d2c7b226361706162696c697479223a226e6574776f726b3a68747470733a706f7374406576696c2e6578616d706c65222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22484f53545f4e4f545f414c4c4f574544222c2272756c65223a226e6f2072756c65227d2c7b226361706162696c697479223a227365637265743a726561643a6769746875622f746f6b656e222c226b696e64223a224b65794b657074222c2272756c65223a22696e20746865207175657279227d2c7b22636f756e74223a392c226b696e64223a22526571756573744d616465222c2272756c65223a2239206d6f7265206f662074686573652c20776869636820617265206e6f74206c6973746564227d5d2c22666f726d6174223a322c226964223a22722d312d31222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a33353661663961336335363362353364386135376432383162316638396132363936663065393533646663306634346265306662396265656435346230643033222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a342c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x5afb6becb200db876f5e89e60bfaafa3', '733'),
	('desk', 'programs', 5, 'r-1-2', 'decision', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\x8686d75917c0c41d7179a56952477fcb2f2f228dfe6b422215611ba50db582fe', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a22746f6f6c3a63616c6c3a6167656e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d312d32222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a34353064363463376264343337663037353333626634653835363136326266353932643330386237646662373534366433643165376233643235303437653263222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a352c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x4367b4afba06b23132a72f0538e2d004', '734'),
	('desk', 'programs', 6, 'r-1-2', 'progress', 'agent', 'allow', '2026-03-01T12:00:00.000000Z', '\x090f4a5f5c27a592e7ce9633cbc2dea621f3a040f8525c16ae82255b52d3dbc3', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226361706162696c697479223a226e6574776f726b3a68747470733a706f7374406576696c2e6578616d706c65222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22484f53545f4e4f545f414c4c4f574544222c2272756c65223a226e6f2072756c65227d5d2c22666f726d6174223a322c226964223a22722d312d32222c226b696e64223a2270726f6772657373222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a38363836643735393137633063343164373137396135363935323437376663623266326632323864666536623432323231353631316261353064623538326665222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a362c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226167656e74222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x862845edf15d77e6ef61af1bf828358d', '735'),
	('desk', 'programs', 7, 'r-1-3', 'receipt', 'Bash', 'allow', '2026-03-01T12:00:00.000000Z', '\x8a90f3596286b4cfb9a1180f0d0059a44c25517d5a02e16229ee2a5f3b7485c2', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a7b226163746f7273223a5b226167656e74222c2267617465776179225d2c22636c69656e74223a226465736b222c22706572736f6e223a22616461227d2c22636f6465223a6e756c6c2c22636f64696e675f6167656e74223a7b2261736b6564223a747275652c2263616c6c223a22746f6f6c755f31222c22656e64223a227265706f72746564222c226576656e74223a22507265546f6f6c557365222c22696e5f6f72646572223a747275652c226e616d65223a22636c61756465222c2272657772697474656e223a747275652c227375626167656e74223a2268656c706572222c2276657273696f6e223a22322e30227d2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a2231322e35222c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666c616773223a5b222d2d616c6c6f772d726561643d2f7372762f64617461225d2c22666f726d6174223a322c226964223a22722d312d33222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a30222c226f62736572766564223a7b22726561736f6e73223a5b22484f53545f4e4f545f414c4c4f574544225d2c2272756c6573223a5b226e6f2072756c65225d2c2276657264696374223a2264656e79222c2277616c6c73223a66616c73657d2c226f7267616e69736174696f6e223a5b227368613235363a31225d2c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a30393066346135663563323761353932653763653936333363626332646561363231663361303430663835323563313661653832323535623532643364626333222c22707572706f7365223a22746f207365652077686174206973207468657265222c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a7b22636c6f736564223a5b2266733a726561643a2f7372762f646174612f2e656e76225d2c22636f756e7473223a7b22636c6f736564223a312c226772616e746564223a312c2272756c6573223a322c2272756e74696d65223a317d2c22646967657374223a227368613235363a30222c22646972656374223a66616c73652c226772616e746564223a5b2266733a726561643a2f7372762f64617461225d2c2272756c6573223a5b2272656164202f7372762f64617461222c2268696465202f7372762f646174612f2e656e76225d2c2272756e74696d65223a5b2272656164202f7573722f6c6962225d7d2c226c6179657273223a5b226c616e646c6f636b225d2c226c6576656c223a2269736f6c61746564222c226d697373696e67223a5b22736563636f6d70225d2c2270726f6772616d73223a7b22616363657373223a7b22646967657374223a227368613235363a30222c226d6f7265223a312c2273657473223a5b7b22636c6f736564223a5b2266733a726561643a2f7372762f646174612f2e656e76225d2c22636f756e7473223a7b22636c6f736564223a312c226772616e746564223a312c2272756c6573223a322c2272756e74696d65223a317d2c22646967657374223a227368613235363a30222c22646972656374223a66616c73652c226772616e746564223a5b2266733a726561643a2f7372762f64617461225d2c2272756c6573223a5b2272656164202f7372762f64617461222c2268696465202f7372762f646174612f2e656e76225d2c2272756e74696d65223a5b2272656164202f7573722f6c6962225d7d5d7d2c22656e646564223a5b302c2d395d2c226c6179657273223a5b226c616e646c6f636b225d2c226d697373696e67223a5b22736563636f6d70225d7d7d2c2273657175656e6365223a372c2273657373696f6e223a2270726f6772616d73222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a2242617368222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a747275652c2276657264696374223a22616c6c6f77227d', '\x26a3502551b338d745bd0b38089d1cee', '736'),
	('licet', 'nodes of the state', 2, 'n-d92b7ccf414f2a8a002baac81d0f2b1a', 'operators', 'licet', 'allow', '2026-03-01T12:00:00.000000Z', '\x02fa07c5b0973f2fc2b98e925207d82fd2f7b051505d4611ff3e956159e5d308', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a226e2d6439326237636366343134663261386130303262616163383164306632623161222c226b696e64223a226f70657261746f7273222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c226e6f6465223a7b22616374223a2265794a68596d39316443493657794a6c5a4449314e5445354f6a465654453877526d4e6e4f44426b4e33457452334a70636b70595632784c4e6d6b34626c427665574979634535316347706b5a553561623363695853776959574e30496a6f696233426c636d463062334a7a496977695a6d397962574630496a6f784c434a735a57526e5a5849694f6949314d5755795a54417a59324a6d4e474d354e4755784d54566b4d5442694d544d325a4456684d4459314d434973496d3576626d4e6c496a6f695a446b79596a646a593259304d54526d4d6d4534595441774d6d4a6859574d344d5751775a6a4a694d5745694c434a306157316c496a6f694d6a41794e6930774d7930774d5651784d6a6f774d446f774d4334774d4441774d444261496e303d222c226279223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226e6f6465223a22222c227369676e6174757265223a2262696e354c5435757a5a666f39515a6554473643556d4f56506144544370376444426c586a7a57504465587471437a4f6378706e364364536b5362514262715a4f75716a564f414d4c6b6f7171476465636a4b6a43413d3d227d2c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a36633734396231633564626233656433383063366331326665633062373238343535373133326236353364613965333964363836303439346536663666346434222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226e6f646573206f6620746865207374617465222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226c69636574222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xcb941becf8b3c5046ec841012c678b3b', '737'),
	('licet', 'acts on the state', 1, 'o-ea0cea81832c822c', 'operators', 'licet state init', 'allow', '2026-03-01T12:00:00.000000Z', '\x579e71891c3a62c30cf89b9574791e842e5731105341c1b5086aa914fa8ddb61', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a226f2d65613063656138313833326338323263222c226b696e64223a226f70657261746f7273222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a2261637473206f6e20746865207374617465222c227374617465223a7b2261626f7574223a5b22656432353531393a31554c4f3046636738306437712d477269724a58576c4b3669386e506f796232704e75706a64654e5a6f77225d2c226279223a22636f6d6d616e64227d2c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a222c22746f6f6c223a226c6963657420737461746520696e6974222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x53c33bf0e8433ff37c41725cb70b708e', '738'),
	('desk', 'main', 1, 'r-efc709906eff-1', 'receipt', 'note', 'ask', '2026-03-01T12:01:00.000000Z', '\x9397f25349a4b7c39a2a4be4b5b46cbfabac270df49bb620bfb41ffd9209592d', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a33623536356233613261613932373538306464363861306131306433333138326463616264643937343535643430326336623839636265346565616432376137222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c22657870697265645c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3133293b207265717565737420612d61313237336166346139383620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30325431323a30313a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d31222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30315431323a30313a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329222c227265717565737420612d61313237336166346139383620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30325431323a30313a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30315431323a30313a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x0d6c648d575a57df848ef088cb43bf6d', '743'),
	('desk', 'main', 2, 'r-efc709906eff-2', 'decision', 'look', 'allow', '2026-03-04T12:01:00.000000Z', '\xeda36cbf92d5bca7507def03eb1b8691d74141cce2b9ccb71b3f299dfe9574e5', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34383162386333313965313135663639383965366637323730623934656633353336643432313862383062366337636530666466646163343565313364663666222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d32222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a39333937663235333439613462376333396132613462653462356234366362666162616332373064663439626236323062666234316666643932303935393264222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30313a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606c6f6f6b602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30313a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xdb7e21f656faa1e0c17ca83612b83c6d', '744'),
	('desk', 'main', 3, 'r-efc709906eff-2', 'receipt', 'look', 'allow', '2026-03-04T12:01:00.000000Z', '\xe7463e52ac4009932753de494c5b787caa84621ba9f2b1d4aa9466854cf3a2d6', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34383162386333313965313135663639383965366637323730623934656633353336643432313862383062366337636530666466646163343565313364663666222c22626f64696573223a7b22617267756d656e7473223a227b5c22706174685c223a5c222f7372762f6e6f7465732f615c227d222c22726573756c74223a225c225261696e2e5c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a317d2c226265666f7265223a7b2263616c6c73223a302c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a307d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a726561643a2f7372762f6e6f7465732f61222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22606c6f6f6b60206e656564732066733a726561643a2a20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3437293b2066733a726561643a2f7372762f6e6f74657320282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d32222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a65646133366362663932643562636137353037646566303365623162383639316437343134316363653262396363623731623366323939646665393537346535222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30313a30302e3030303030305a222c22726573756c74223a227368613235363a61396433623635396564343936326536336438376437313066616361653936613032333839303335373963343036623266303138623736383834383733366239222c2272756c6573223a5b22606c6f6f6b602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30313a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xa52baedf9f360c0c6ef39887e310f878', '748'),
	('desk', 'main', 4, 'r-efc709906eff-3', 'decision', 'look', 'allow', '2026-03-04T12:02:00.000000Z', '\xd7f6337fda6d06d88ddf980477ca634d2985d4f6c69e67a2aaf3b33a082571cc', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a38393736373833643933613230303061323334636637653837393639663439643765356531346363386139396665633464326438346664383264333933383837222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d33222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a65373436336535326163343030393933323735336465343934633562373837636161383436323162613966326231643461613934363638353463663361326436222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606c6f6f6b602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a342c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30323a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x3093c9947f661cd46b8d98fb7c6db11d', '749'),
	('desk', 'main', 5, 'r-efc709906eff-3', 'receipt', 'look', 'deny', '2026-03-04T12:02:00.000000Z', '\x50638652c6c833a127456a7780687e9d65666d08ff9a2f89fade51020e840369', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a38393736373833643933613230303061323334636637653837393639663439643765356531346363386139396665633464326438346664383264333933383837222c22626f64696573223a7b22617267756d656e7473223a227b5c22706174685c223a5c222f6574632f7061737377645c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a322c2263616c6c735f6f665f746f6f6c223a322c2263616c6c735f746f646179223a327d2c226265666f7265223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a317d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a22657865637574696f6e5f6661696c6564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22504154485f4e4f545f524541434841424c453a2072656164206e6f74207065726d697474656420666f72202f6574632f706173737764222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a726561643a2f6574632f706173737764222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22504154485f4e4f545f524541434841424c45222c2272756c65223a22746865206d616e696665737420646f6573206e6f7420616c6c6f7720697420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d33222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a64376636333337666461366430366438386464663938303437376361363334643239383564346636633639653637613261616633623333613038323537316363222c22707572706f7365223a6e756c6c2c22726561736f6e223a22504154485f4e4f545f524541434841424c45222c227265636f72646564223a22323032362d30332d30345431323a30323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22746865206d616e696665737420646f6573206e6f7420616c6c6f7720697420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a352c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30323a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\x0cb36965ff96d2ec5369d97917a42170', '752'),
	('desk', 'main', 6, 'r-efc709906eff-4', 'receipt', 'nope', 'deny', '2026-03-04T12:03:00.000000Z', '\xf6da2a2550b26583227a23072217b1d5d723adc37106ba71021dcbf6a30d4726', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22626f64696573223a7b22617267756d656e7473223a6e756c6c2c22726573756c74223a6e756c6c7d2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a226e6f745f617661696c61626c65222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22554e4b4e4f574e5f544f4f4c3a206e6f7065206d6179206e6f742062652063616c6c6564222c226576656e7473223a5b7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7065222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22554e4b4e4f574e5f544f4f4c222c2272756c65223a22606e6f706560206973206e6f74206b6e6f776e206865726520282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3129227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d34222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a35303633383635326336633833336131323734353661373738303638376539643635363636643038666639613266383966616465353130323065383430333639222c22707572706f7365223a6e756c6c2c22726561736f6e223a22554e4b4e4f574e5f544f4f4c222c227265636f72646564223a22323032362d30332d30345431323a30333a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606e6f706560206973206e6f74206b6e6f776e206865726520282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3129225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a362c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30333a30302e3030303030305a222c22746f6f6c223a226e6f7065222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\xe862a55787ea701ce420720e7d5515a6', '753'),
	('desk', 'main', 7, 'r-efc709906eff-5', 'decision', 'fail', 'allow', '2026-03-04T12:04:00.000000Z', '\x991de71585a90dfc144b26eef961df7bb87305788c36da5152617502220f900b', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6661696c222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d35222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a66366461326132353530623236353833323237613233303732323137623164356437323361646333373130366261373130323164636266366133306434373236222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30343a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606661696c602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3929225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a372c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30343a30302e3030303030305a222c22746f6f6c223a226661696c222c22746f6f6c5f646967657374223a227368613235363a30373934663736383461383538333038336635653731336466306461306137373962663535616132386434393738623039303864323131303639323861386361222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x29e6326e127a262c8282f71b23585b81', '754'),
	('desk', 'main', 8, 'r-efc709906eff-5', 'receipt', 'fail', 'allow', '2026-03-04T12:04:00.000000Z', '\xaca519a8c2bd33efd7d01a0f0538a8f7cacb481f94c6221d47fd43a4316dd1b7', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34343133366661333535623336373861313134366164313666376538363439653934666234666332316665373765383331306330363066363163616166663861222c22626f64696573223a7b22617267756d656e7473223a227b7d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a337d2c226265666f7265223a7b2263616c6c73223a322c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a327d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a22657865637574696f6e5f6661696c6564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22544f4f4c5f4641494c45443a2056616c75654572726f723a20697420646f6573222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6661696c222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d35222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a39393164653731353835613930646663313434623236656566393631646637626238373330353738386333366461353135323631373530323232306639303062222c22707572706f7365223a6e756c6c2c22726561736f6e223a22544f4f4c5f4641494c4544222c227265636f72646564223a22323032362d30332d30345431323a30343a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2256616c75654572726f723a20697420646f657320282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a393029225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a382c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30343a30302e3030303030305a222c22746f6f6c223a226661696c222c22746f6f6c5f646967657374223a227368613235363a30373934663736383461383538333038336635653731336466306461306137373962663535616132386434393738623039303864323131303639323861386361222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xa6875ae8d6460304fd93ac95925d16d8', '757'),
	('desk', 'main', 9, 'r-efc709906eff-6', 'receipt', 'note', 'ask', '2026-03-04T12:05:00.000000Z', '\xae5adfe1af0469f1a55c4b216d39adc58b6d2e6cf1745f467bff5e24983790e5', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a33316563653732616264386564636537336664373437623333376265646236373763386634393138613463313633343736613838343737626464373334646330222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c2277616974696e675c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d2c226265666f7265223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3133293b207265717565737420612d30316535396633656239633320776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30353a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d36222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a61636135313961386332626433336566643764303161306630353338613866376361636234383166393463363232316434376664343361343331366464316237222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a30353a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329222c227265717565737420612d30316535396633656239633320776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30353a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a392c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30353a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\xa51b95058a81ca69918fa7513c51e5c0', '759'),
	('desk', 'main', 10, 'r-efc709906eff-7', 'receipt', 'note', 'ask', '2026-03-04T12:06:00.000000Z', '\x229fecb9f026d1b909505563749a3096517718a99e9abb5a455d6a876ddcb6bd', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a65653938663932636466393133643834333664363666666130363135363265303461633433323735303034363539343037626661343237656661633564353261222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c22676976656e5c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d2c226265666f7265223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3133293b207265717565737420612d30323666623233303763613120776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30363a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d37222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a61653561646665316166303436396631613535633462323136643339616463353862366432653663663137343566343637626666356532343938333739306535222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a30363a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329222c227265717565737420612d30323666623233303763613120776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30363a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31302c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30363a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x3d6d3bd174a2ccadf373019891132fd4', '761'),
	('desk', 'main', 11, 'r-efc709906eff-8', 'receipt', 'note', 'ask', '2026-03-04T12:07:00.000000Z', '\xdc221fbc8af4f641a507ef6d5726d43c4944049912d2743e6a877f271aa1a399', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a30366131376361373062343135613534663065633533623134366363613661373035636431643566323737356364363334636536363564626339633732376534222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c22757365645c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d2c226265666f7265223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3133293b207265717565737420612d66366132346130396361333920776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30373a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d38222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a32323966656362396630323664316239303935303535363337343961333039363531373731386139396539616262356134353564366138373664646362366264222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a30373a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329222c227265717565737420612d66366132346130396361333920776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30373a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31312c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30373a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x6274bc3925adc0c7a79e89eaadf7deed', '763'),
	('desk', 'main', 12, 'r-efc709906eff-9', 'receipt', 'note', 'ask', '2026-03-04T12:08:00.000000Z', '\x396a0922241dca94952dc1f44b80711687e0ea0b0ae9de27794e55133632e969', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a32353433343832643436333439636263666262326665386266363565356539323462366630633936313732323536613966303837653733623533346538323361222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c22726566757365645c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d2c226265666f7265223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3133293b207265717565737420612d61303530383030336664623520776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30383a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d39222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a64633232316662633861663466363431613530376566366435373236643433633439343430343939313264323734336536613837376632373161613161333939222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a30383a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329222c227265717565737420612d61303530383030336664623520776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a30383a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31322c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30383a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x030f5469068a87c231572cb90fa94c76', '765'),
	('desk', 'main', 13, 'r-efc709906eff-10', 'decision', 'note', 'allow', '2026-03-04T12:09:00.000000Z', '\x4c4fdf5ccfa3646e773bb5d49012aa2709e3b087ce424385622748eb82d564d8', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a227368613235363a30366131376361373062343135613534663065633533623134366363613661373035636431643566323737356364363334636536363564626339633732376534222c226279223a5b22636f6d6d616e64225d2c2272657175657374223a22612d663661323461303963613339222c22757365223a6e756c6c7d5d2c22617267756d656e7473223a227368613235363a30366131376361373062343135613534663065633533623134366363613661373035636431643566323737356364363334636536363564626339633732376534222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22617070726f766564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3130222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a33393661303932323234316463613934393532646331663434623830373131363837653065613062306165396465323737393465353531333336333265393639222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30393a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606e6f7465602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3629222c2269742061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31332c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30393a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xb271da1ffd899517a38df183347c6833', '768'),
	('desk', 'main', 14, 'r-efc709906eff-10', 'receipt', 'note', 'allow', '2026-03-04T12:09:00.000000Z', '\x2af20ad2eb80ac6ac681bc827bcb46fa97de57e014cb4d0adbc2e19b4bededf6', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a227368613235363a30366131376361373062343135613534663065633533623134366363613661373035636431643566323737356364363334636536363564626339633732376534222c226279223a5b22636f6d6d616e64225d2c2272657175657374223a22612d663661323461303963613339222c22757365223a6e756c6c7d5d2c22617267756d656e7473223a227368613235363a30366131376361373062343135613534663065633533623134366363613661373035636431643566323737356364363334636536363564626339633732376534222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c22757365645c227d222c22726573756c74223a225c2277726f746520757365645c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a342c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a347d2c226265666f7265223a7b2263616c6c73223a332c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a337d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22617070726f766564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a77726974653a2f7372762f6e6f7465732f6f75742f75736564222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22606e6f746560206e656564732066733a77726974653a2f7372762f6e6f7465732f6f757420282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3631293b2066733a77726974653a2f7372762f6e6f7465732f6f757420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3130222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a34633466646635636366613336343665373733626235643439303132616132373039653362303837636534323433383536323237343865623832643536346438222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a30393a30302e3030303030305a222c22726573756c74223a227368613235363a65323262313336333933623366323665636637303161313737336332396330393730633666366337616231616433356539376139383263326536326535636439222c2272756c6573223a5b22606e6f7465602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3629222c2269742061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313329225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31342c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a30393a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x2293c22d4313d5b853195df1d1b226dd', '772'),
	('desk', 'main', 15, 'r-efc709906eff-11', 'receipt', 'jot', 'ask', '2026-03-04T12:10:00.000000Z', '\x190068f077be5e0fb200e52c2df809c91f79103e15929bda6dad5d03f4bafe3b', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a62666536333461646361363066303831313966316166666666653562643564336665363965396537653833346564303037306634616265393434633566373030222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c2266697273745c227d222c22726573756c74223a6e756c6c7d2c22627564676574223a7b226166746572223a7b2263616c6c73223a342c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a347d2c226265666f7265223a7b2263616c6c73223a342c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a347d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206a6f74206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6a6f74222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a37293b207265717565737420612d39316136326439646334303620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31303a30302e3030305a227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3131222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a32616632306164326562383061633661633638316263383237626362343666613937646535376530313463623464306164626332653139623462656465646636222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a31303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729222c227265717565737420612d39316136326439646334303620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31303a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31352c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31303a30302e3030303030305a222c22746f6f6c223a226a6f74222c22746f6f6c5f646967657374223a227368613235363a38333739666634383637306364333132626562323464363963366238623631383739653632386634333936653338613535383530316231666664613934383265222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x210543ec886836cd881779c5964bba84', '775'),
	('desk', 'main', 16, 'r-efc709906eff-12', 'decision', 'jot', 'allow', '2026-03-04T12:11:00.000000Z', '\x1403e72d68223597cb6208e9a099a353e2f04beb4251011202bf3ca5a9e90c13', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a6e756c6c2c226279223a5b22636f6d6d616e64225d2c2272657175657374223a22612d393161363264396463343036222c22757365223a6e756c6c7d5d2c22617267756d656e7473223a227368613235363a36613533393536396232663139333931366131613064353338333033323432343836313961393634653130393963313065656638626461616262653835626134222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22617070726f766564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6a6f74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3132222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a31393030363866303737626535653066623230306535326332646638303963393166373931303365313539323962646136646164356430336634626166653362222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31313a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606a6f74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729222c2269742061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31362c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31313a30302e3030303030305a222c22746f6f6c223a226a6f74222c22746f6f6c5f646967657374223a227368613235363a38333739666634383637306364333132626562323464363963366238623631383739653632386634333936653338613535383530316231666664613934383265222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x961ce56dd1a1838441ac13dff9aebae5', '777'),
	('desk', 'main', 17, 'r-efc709906eff-12', 'receipt', 'jot', 'allow', '2026-03-04T12:11:00.000000Z', '\x489bc234d59d694947f7d341c3abc6a95e8ab6162e026b6999780e27ca3f719e', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a6e756c6c2c226279223a5b22636f6d6d616e64225d2c2272657175657374223a22612d393161363264396463343036222c22757365223a6e756c6c7d5d2c22617267756d656e7473223a227368613235363a36613533393536396232663139333931366131613064353338333033323432343836313961393634653130393963313065656638626461616262653835626134222c22626f64696573223a7b22617267756d656e7473223a227b5c226e616d655c223a5c227365636f6e645c227d222c22726573756c74223a225c2277726f7465207365636f6e645c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a352c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a357d2c226265666f7265223a7b2263616c6c73223a342c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a347d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22617070726f766564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6a6f74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a77726974653a2f7372762f6e6f7465732f6f75742f7365636f6e64222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22606a6f7460206e656564732066733a77726974653a2f7372762f6e6f7465732f6f757420282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3639293b2066733a77726974653a2f7372762f6e6f7465732f6f757420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a313229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3132222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a31343033653732643638323233353937636236323038653961303939613335336532663034626562343235313031313230326266336361356139653930633133222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31313a30302e3030303030305a222c22726573756c74223a227368613235363a38656537313932343663303139303434323462306533623131363139643532663435633035346535383865663337336162313164623030363130306365326166222c2272756c6573223a5b22606a6f74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729222c2269742061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3729225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a31372c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31313a30302e3030303030305a222c22746f6f6c223a226a6f74222c22746f6f6c5f646967657374223a227368613235363a38333739666634383637306364333132626562323464363963366238623631383739653632386634333936653338613535383530316231666664613934383265222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xcd700b861e7fc7efaf8210d895f7a3db', '780'),
	('signer', 'signed', 1, 'r-f41c9914d8a8-1', 'receipt', 'note', 'ask', '2026-03-04T12:12:00.000000Z', '\x8757fad0157a1e66a1d11a9f29ce0ab85048adc5bd824da218dabe515ffb70cf', '\x7b226167656e74223a227369676e6572222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a36666265313232343432333934643862313464333835613136663632626565623332353762363761306363343136343630363730646563363465326662326539222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22415050524f56414c5f52455155495245443a20746869732063616c6c206f66206e6f7465206e656564732074686520617070726f76616c206f66206120706572736f6e222c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f7369676e65642e79616d6c3a3829227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6e6f7465222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22415050524f56414c5f5245515549524544222c2272756c65223a22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f7369676e65642e79616d6c3a38293b207265717565737420612d65616562623461643461646620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31323a30302e3030305a3b2030206f662032207369676e61747572657320617265207468657265227d5d2c22666f726d6174223a322c226964223a22722d6634316339393134643861382d31222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a63326163303064346539373861666330636464303735663761366362633663646134633036613439636665366466333531393634323561636331373035306565222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f5245515549524544222c227265636f72646564223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22636c6173732077726974655f6c696d697465642061736b73206265666f726520656163682063616c6c20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f7369676e65642e79616d6c3a3829222c227265717565737420612d65616562623461643461646620776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31323a30302e3030305a3b2030206f662032207369676e61747572657320617265207468657265225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a227369676e6564222c2274696d65223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22746f6f6c223a226e6f7465222c22746f6f6c5f646967657374223a227368613235363a63613039353832646565313661396233383633306165616562383733663264663231656462333536333538363933613437323063643266373731363535386566222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\xd912a2dcb9b5099c0b59f4921eb04d71', '782'),
	('desk', 'standing approvals', 1, 'a-00192dce5c72', 'approval', 'licet trust', 'allow', '2026-03-04T12:12:00.000000Z', '\x648adb8fe3030d7c2b1f873630254ea439bd17c8f6c2ca5fe377324dc1b67915', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a6e756c6c2c226279223a5b227465726d696e616c225d2c2264656c65746573223a747275652c2272657175657374223a22612d303031393264636535633732222c227374616e64696e67223a747275652c22757365223a6e756c6c7d5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22612d303031393264636535633732222c226b696e64223a22617070726f76616c222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a227374616e64696e6720617070726f76616c73222c227374616e64696e67223a7b2264656c65746573223a5b2266733a64656c6574653a2f7372762f6e6f7465732f6f7574225d2c226469726563746f7279223a222f6465736b222c2265787069726573223a22323032362d30342d30335431323a31323a30302e3030305a222c2272657175657374223a227368613235363a38353965306362326132363831326634626131636330313331383433633432356435363535613830626531633537396163373038346565613266626438633766227d2c2274696d65223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22746f6f6c223a226c69636574207472757374222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x859637fa7adc0f5d7a56c6f93641afd9', '787'),
	('desk', 'standing approvals', 2, 'a-a124a1890842', 'approval', 'licet trust', 'allow', '2026-03-04T12:12:00.000000Z', '\x2650c838b9c117b9e39c45477e64ef91aef87e3e67e4fc27eaceaf050c737b23', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a6e756c6c2c226279223a5b227465726d696e616c225d2c2264656c65746573223a747275652c2272657175657374223a22612d613132346131383930383432222c227374616e64696e67223a747275652c22757365223a6e756c6c7d5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22612d613132346131383930383432222c226b696e64223a22617070726f76616c222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a36343861646238666533303330643763326231663837333633303235346561343339626431376338663663326361356665333737333234646331623637393135222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a227374616e64696e6720617070726f76616c73222c227374616e64696e67223a7b2264656c65746573223a5b2266733a64656c6574653a2f7372762f6e6f7465732f6f7574225d2c226469726563746f7279223a222f6465736b222c2265787069726573223a22323032362d30332d31315431323a31323a30302e3030305a222c2272657175657374223a227368613235363a61626361616230323639666666653636653862626166386665333333346531346163333931643065313166656238396261333935366132396238396261363230227d2c2274696d65223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22746f6f6c223a226c69636574207472757374222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x07312eaf3880a26cf3de80aba00e4653', '791'),
	('desk', 'standing approvals', 3, 'a-a124a1890842', 'withdrawal', 'licet trust', 'deny', '2026-03-04T12:12:00.000000Z', '\xdef2f79a8ec2d5e372a089c1520f5ea836e868f0bbc60c3386c1bb5f03a388a3', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b7b22617267756d656e7473223a6e756c6c2c226279223a5b227465726d696e616c225d2c2264656c65746573223a747275652c2272657175657374223a22612d613132346131383930383432222c227374616e64696e67223a747275652c22757365223a6e756c6c7d5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22612d613132346131383930383432222c226b696e64223a227769746864726177616c222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a32363530633833386239633131376239653339633435343737653634656639316165663837653365363765346663323765616365616630353063373337623233222c22707572706f7365223a6e756c6c2c22726561736f6e223a22415050524f56414c5f44454e494544222c227265636f72646564223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a227374616e64696e6720617070726f76616c73222c227374616e64696e67223a7b2264656c65746573223a5b2266733a64656c6574653a2f7372762f6e6f7465732f6f7574225d2c226469726563746f7279223a222f6465736b222c2265787069726573223a22323032362d30332d31315431323a31323a30302e3030305a222c2272657175657374223a227368613235363a61626361616230323639666666653636653862626166386665333333346531346163333931643065313166656238396261333935366132396238396261363230227d2c2274696d65223a22323032362d30332d30345431323a31323a30302e3030303030305a222c22746f6f6c223a226c69636574207472757374222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\xbe836757e376f9fd35af0faaac9396eb', '792'),
	('desk', 'spent', 1, 'r-efc709906eff-13', 'decision', 'pay', 'allow', '2026-03-04T12:13:00.000000Z', '\xd4bc5929022001900ad56c528ba4af0aa286c6ddd7ee2c0597f688e51a11ac46', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a37383438343236303262623033653735376631643535303639633463373032666234326535613963623938343634623436323661313563303732316262396537222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3133222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31333a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a227370656e74222c2274696d65223a22323032362d30332d30345431323a31333a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x8e6375c09d8685fd0f5536c9b1d1abe1', '794'),
	('desk', 'spent', 2, 'r-efc709906eff-13', 'receipt', 'pay', 'allow', '2026-03-04T12:13:00.000000Z', '\xacad3cc9e9e13f9e97f0ad5a87407399a221521e29aff4153bce269cbb232e7c', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a37383438343236303262623033653735376631643535303639633463373032666234326535613963623938343634623436323661313563303732316262396537222c22626f64696573223a7b22617267756d656e7473223a227b5c226f726465725c223a5c227370656e742d315c227d222c22726573756c74223a225c2270616964207370656e742d315c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a362c22636f73745f757364223a22302e3235222c22636f73745f7573645f6f665f746f6f6c223a22302e3235222c22636f73745f7573645f746f646179223a22302e3235227d2c226265666f7265223a7b2263616c6c73223a302c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a352c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a2230227d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564222c2272756c65223a22302e323520555344227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3133222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a64346263353932393032323030313930306164353663353238626134616630616132383663366464643765653263303539376636383865353161313161633436222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31333a30302e3030303030305a222c22726573756c74223a227368613235363a62356639346465366163363538623033353663313439636539323665653565643935616134353633396532346233363963336233653338663965323333653562222c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a227370656e74222c2274696d65223a22323032362d30332d30345431323a31333a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x2c0d479d1cd842e6f6a58e3ac2c7bd9f', '797'),
	('desk', 'spent', 3, 'r-efc709906eff-14', 'decision', 'pay', 'allow', '2026-03-04T12:14:00.000000Z', '\xf72bd98f209e8ec45b7a9b9059d4e9b80cb7badc162fdd7e047f9b93b791bb50', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a62353234626337623938363933383266306335373330353963303565316534646239303132336466333432643638353933333432653339613965663630393861222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3134222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a61636164336363396539653133663965393766306164356138373430373339396132323135323165323961666634313533626365323639636262323332653763222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31343a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a227370656e74222c2274696d65223a22323032362d30332d30345431323a31343a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xcae8382e181cf4dea0746335dc25c3ec', '798'),
	('desk', 'spent', 4, 'r-efc709906eff-14', 'receipt', 'pay', 'allow', '2026-03-04T12:14:00.000000Z', '\x9a89f0b738702d0e851ed1916cfba49eab916aaf49d89daccfc2c003df98a958', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a62353234626337623938363933383266306335373330353963303565316534646239303132336466333432643638353933333432653339613965663630393861222c22626f64696573223a7b22617267756d656e7473223a227b5c226f726465725c223a5c227370656e742d325c227d222c22726573756c74223a225c2270616964207370656e742d325c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a322c2263616c6c735f6f665f746f6f6c223a322c2263616c6c735f746f646179223a372c22636f73745f757364223a22302e35222c22636f73745f7573645f6f665f746f6f6c223a22302e35222c22636f73745f7573645f746f646179223a22302e35227d2c226265666f7265223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a362c22636f73745f757364223a22302e3235222c22636f73745f7573645f6f665f746f6f6c223a22302e3235222c22636f73745f7573645f746f646179223a22302e3235227d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564222c2272756c65223a22302e323520555344227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3134222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a66373262643938663230396538656334356237613962393035396434653962383063623762616463313632666464376530343766396239336237393162623530222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31343a30302e3030303030305a222c22726573756c74223a227368613235363a61316137346135623839636337333364336135313664646366303563623430646462623366313334616164613863316165353461386237383234326436323534222c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a342c2273657373696f6e223a227370656e74222c2274696d65223a22323032362d30332d30345431323a31343a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x86eaee789bcf67c8da1099902e2bf2b0', '801'),
	('desk', 'kept', 1, 'r-efc709906eff-15', 'decision', 'pay', 'allow', '2026-03-04T12:15:00.000000Z', '\x935e119908ce591287b24cde2a7fbcbc3bf50931e3e8bb3ba790f670365b7008', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a30346164366161643837613366363133326230643138346136326664326334363537353762303039636438386161316635653638653838356366373433643436222c22627564676574223a6e756c6c2c2263616c6c5f6964223a226f726465722d31222c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3135222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31353a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226b657074222c2274696d65223a22323032362d30332d30345431323a31353a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x4125e71f2cf0b4880bb61621a99a0689', '805'),
	('desk', 'kept', 2, 'r-efc709906eff-15', 'receipt', 'pay', 'allow', '2026-03-04T12:15:00.000000Z', '\x18ab6b2bdaed7dec9dc845cd9c1987fc8924df6e3476508230116211ba72baf7', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a30346164366161643837613366363133326230643138346136326664326334363537353762303039636438386161316635653638653838356366373433643436222c22626f64696573223a7b22617267756d656e7473223a227b5c226f726465725c223a5c226b6570745c227d222c22726573756c74223a225c2270616964206b6570745c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a392c22636f73745f757364223a22302e3235222c22636f73745f7573645f6f665f746f6f6c223a22302e3235222c22636f73745f7573645f746f646179223a2231227d2c226265666f7265223a7b2263616c6c73223a302c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a382c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22302e3735227d7d2c2263616c6c5f6964223a226f726465722d31222c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564222c2272756c65223a22302e323520555344227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3135222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a39333565313139393038636535393132383762323463646532613766626362633362663530393331653365386262336261373930663637303336356237303038222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31353a30302e3030303030305a222c22726573756c74223a227368613235363a62353737323933323332653836333837623034636166393131383165303638343730386562393633333664666630376264333931346438626231316630613066222c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226b657074222c2274696d65223a22323032362d30332d30345431323a31353a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xa32dca3e91af931fe0beaf555deb99ab', '808'),
	('desk', 'kept', 3, 'r-efc709906eff-16', 'receipt', 'pay', 'allow', '2026-03-04T12:16:00.000000Z', '\x3c208711a51b6aa1817f78d061798a4d2932a94f6968060c6a1386b5f9f86f8d', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a30346164366161643837613366363133326230643138346136326664326334363537353762303039636438386161316635653638653838356366373433643436222c22626f64696573223a7b22617267756d656e7473223a227b5c226f726465725c223a5c226b6570745c227d222c22726573756c74223a225c2270616964206b6570745c22227d2c22627564676574223a6e756c6c2c2263616c6c5f6964223a226f726465722d31222c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3136222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a31386162366232626461656437646563396463383435636439633139383766633839323464663665333437363530383233303131363231316261373262616637222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31363a30302e3030303030305a222c2272657065617473223a22722d6566633730393930366566662d3135222c22726573756c74223a227368613235363a62353737323933323332653836333837623034636166393131383165303638343730386562393633333664666630376264333931346438626231316630613066222c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a226b657074222c2274696d65223a22323032362d30332d30345431323a31363a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x010af73edf00bad286990c32cf07aa77', '810'),
	('desk', 'kept', 4, 'r-efc709906eff-17', 'decision', 'pay', 'allow', '2026-03-04T12:17:00.000000Z', '\x7a08599b70ffe8a9636206f898d521bf3ae427a5483ad0b72f463741840712d9', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a32303038663830636635643230646133623165353439313237373838363964393161386438663966336561353434646162323163353133626630333566386433222c22627564676574223a6e756c6c2c2263616c6c5f6964223a226f726465722d32222c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3137222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a33633230383731316135316236616131383137663738643036313739386134643239333261393466363936383036306336613133383662356639663836663864222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a342c2273657373696f6e223a226b657074222c2274696d65223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x824aba715ef650c90febf91565b39dd4', '812'),
	('desk', 'kept', 5, 'r-efc709906eff-17', 'receipt', 'pay', 'allow', '2026-03-04T12:17:00.000000Z', '\xf748708fec4c0e033dd34ae7060ff1920e795dccd5d2646f4afad32f7f429e8d', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a32303038663830636635643230646133623165353439313237373838363964393161386438663966336561353434646162323163353133626630333566386433222c22626f64696573223a7b22617267756d656e7473223a227b5c226f726465725c223a5c226c6f73745c227d222c22726573756c74223a225c2270616964206c6f73745c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a322c2263616c6c735f6f665f746f6f6c223a322c2263616c6c735f746f646179223a31302c22636f73745f757364223a22302e35222c22636f73745f7573645f6f665f746f6f6c223a22302e35222c22636f73745f7573645f746f646179223a22312e3235227d2c226265666f7265223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a392c22636f73745f757364223a22302e3235222c22636f73745f7573645f6f665f746f6f6c223a22302e3235222c22636f73745f7573645f746f646179223a2231227d7d2c2263616c6c5f6964223a226f726465722d32222c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a22302e3235222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564222c2272756c65223a22302e323520555344227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3137222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a37613038353939623730666665386139363336323036663839386435323162663361653432376135343833616430623732663436333734313834303731326439222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22726573756c74223a227368613235363a31343066306462386365313130336530633538346231626263313361383630643964356430326534306431366638313965626665303132636632666335366364222c2272756c6573223a5b2260706179602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3529225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a352c2273657373696f6e223a226b657074222c2274696d65223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a227368613235363a66363838626566386438353235323439356161383838623862323565366434323065386466616566616234326530393665363964626562623935343536643661222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x4c54412420e89e5b45ef1e563d3d904b', '815'),
	('desk>helper', 'main', 1, 'r-efc709906eff-18', 'decision', 'look', 'allow', '2026-03-04T12:17:00.000000Z', '\xb440b92e52d57088d0eec62879df7fa046e18183bd46456cd4073bfddcedb05c', '\x7b226167656e74223a226465736b3e68656c706572222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34383162386333313965313135663639383965366637323730623934656633353336643432313862383062366337636530666466646163343565313364663666222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3138222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a39363636633538306561363039316439363561363538343761303831653932623533633764313330326261393637393165386139663766623731383936343363222c22706172656e74223a7b226167656e74223a226465736b222c2273657373696f6e223a226d61696e227d2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b22606c6f6f6b602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xecc786322c52db21c9b0f6ae8412f97d', '816'),
	('desk>helper', 'main', 2, 'r-efc709906eff-18', 'receipt', 'look', 'allow', '2026-03-04T12:17:00.000000Z', '\x3b8668da7cfcaf20ce46cf10be31b036b84faeda9a461996fbf35df15fb41776', '\x7b226167656e74223a226465736b3e68656c706572222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a34383162386333313965313135663639383965366637323730623934656633353336643432313862383062366337636530666466646163343565313364663666222c22626f64696573223a7b22617267756d656e7473223a227b5c22706174685c223a5c222f7372762f6e6f7465732f615c227d222c22726573756c74223a225c225261696e2e5c22227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a362c2263616c6c735f6f665f746f6f6c223a332c2263616c6c735f746f646179223a31312c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d2c226265666f7265223a7b2263616c6c73223a352c2263616c6c735f6f665f746f6f6c223a322c2263616c6c735f746f646179223a31302c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a6c6f6f6b222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a726561643a2f7372762f6e6f7465732f61222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22606c6f6f6b60206e656564732066733a726561643a2a20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3437293b2066733a726561643a2f7372762f6e6f74657320282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3132293b2066733a726561643a2f7372762f6e6f746573202864656c6567617465286167656e743d276465736b3e68656c706572272929227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3138222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a39363636633538306561363039316439363561363538343761303831653932623533633764313330326261393637393165386139663766623731383936343363222c22706172656e74223a7b226167656e74223a226465736b222c2273657373696f6e223a226d61696e227d2c2270726576696f7573223a227368613235363a62343430623932653532643537303838643065656336323837396466376661303436653138313833626434363435366364343037336266646463656462303563222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22726573756c74223a227368613235363a61396433623635396564343936326536336438376437313066616361653936613032333839303335373963343036623266303138623736383834383733366239222c2272756c6573223a5b22606c6f6f6b602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22746f6f6c223a226c6f6f6b222c22746f6f6c5f646967657374223a227368613235363a65663366386165663766313665623438383835623532323362313138316130326134656162343764643365626335323062323531353361663664656633323031222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xfc79ac6cd79d4674aae3bf6934d4d627', '819'),
	('desk>helper', 'main', 3, 'r-efc709906eff-19', 'receipt', 'pay', 'deny', '2026-03-04T12:17:00.000000Z', '\xccb79e73b6f9e2909711bb13a17552bb1759c49181d72813488119d4612fde85', '\x7b226167656e74223a226465736b3e68656c706572222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22626f64696573223a7b22617267756d656e7473223a6e756c6c2c22726573756c74223a6e756c6c7d2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22544f4f4c5f4e4f545f494e5f42554e444c453a20706179206d6179206e6f742062652063616c6c6564222c226576656e7473223a5b7b226361706162696c697479223a22746f6f6c3a63616c6c3a706179222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22544f4f4c5f4e4f545f494e5f42554e444c45222c2272756c65223a227468652064656c65676174696f6e20746f20606465736b3e68656c70657260206c6561766573206070617960206f7574202864656c6567617465286167656e743d276465736b3e68656c706572272929227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3139222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a39363636633538306561363039316439363561363538343761303831653932623533633764313330326261393637393165386139663766623731383936343363222c22706172656e74223a7b226167656e74223a226465736b222c2273657373696f6e223a226d61696e227d2c2270726576696f7573223a227368613235363a33623836363864613763666361663230636534366366313062653331623033366238346661656461396134363139393666626633356466313566623431373736222c22707572706f7365223a6e756c6c2c22726561736f6e223a22544f4f4c5f4e4f545f494e5f42554e444c45222c227265636f72646564223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b227468652064656c65676174696f6e20746f20606465736b3e68656c70657260206c6561766573206070617960206f7574202864656c6567617465286167656e743d276465736b3e68656c706572272929225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a226d61696e222c2274696d65223a22323032362d30332d30345431323a31373a30302e3030303030305a222c22746f6f6c223a22706179222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\xe27f04966fb428d8b77d1b3071d7c218', '820'),
	('desk', 'counting', 1, 'r-efc709906eff-20', 'decision', 'count', 'allow', '2026-03-04T12:18:00.000000Z', '\x545071b5a023fd1c30ad881b18b172793cc703e0015e104e8dc20da4363e9370', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a61656263636135663264613439393931343062303833303266616566313630666231656530656665396261646238343135623463623537633162396365306466222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a636f756e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3230222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31383a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260636f756e74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3829225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a22636f756e74696e67222c2274696d65223a22323032362d30332d30345431323a31383a30302e3030303030305a222c22746f6f6c223a22636f756e74222c22746f6f6c5f646967657374223a227368613235363a33303736353634653063356231363133336439653764663439633735666134626436373262653530636661303031323666643936333639353064373536623730222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x5b97da4dbd506841ad118cbb34f75f0c', '821'),
	('desk', 'counting', 2, 'r-efc709906eff-20', 'receipt', 'count', 'allow', '2026-03-04T12:18:00.000000Z', '\x8415064b85e72446bf0ede47567f8bac06d8ed031941e02cba3d2a7efbcecc1e', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a61656263636135663264613439393931343062303833303266616566313630666231656530656665396261646238343135623463623537633162396365306466222c22626f64696573223a7b22617267756d656e7473223a227b5c22737465705c223a327d222c22726573756c74223a2232227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a31322c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d2c226265666f7265223a7b2263616c6c73223a302c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a31312c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a636f756e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2273746f726167653a726561643a73657373696f6e222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a2260636f756e7460206e656564732073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3737293b2073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229227d2c7b226361706162696c697479223a2273746f726167653a77726974653a73657373696f6e222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a2260636f756e7460206e656564732073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3737293b2073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3230222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a35343530373162356130323366643163333061643838316231386231373237393363633730336530303135653130346538646332306461343336336539333730222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31383a30302e3030303030305a222c22726573756c74223a227368613235363a64343733356533613236356531366565653033663539373138623962356430333031396330376438623663353166393064613361363636656563313361623335222c2272756c6573223a5b2260636f756e74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3829225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a22636f756e74696e67222c2274696d65223a22323032362d30332d30345431323a31383a30302e3030303030305a222c22746f6f6c223a22636f756e74222c22746f6f6c5f646967657374223a227368613235363a33303736353634653063356231363133336439653764663439633735666134626436373262653530636661303031323666643936333639353064373536623730222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x066c3a7368d767c55f7d011e37877f28', '825'),
	('desk', 'over', 1, 'r-efc709906eff-21', 'decision', 'count', 'allow', '2026-03-04T12:19:00.000000Z', '\x29faa86fd8bacae2fa5d09fa7ac1627b3d5efbace2a64886ef4c5f4a4789f3cf', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a61656263636135663264613439393931343062303833303266616566313630666231656530656665396261646238343135623463623537633162396365306466222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a636f756e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3231222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260636f756e74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3829225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226f766572222c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22746f6f6c223a22636f756e74222c22746f6f6c5f646967657374223a227368613235363a33303736353634653063356231363133336439653764663439633735666134626436373262653530636661303031323666643936333639353064373536623730222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xbb4fd9f0b8934aeba2f6b652a97de135', '826'),
	('licet', 'acts on the state', 2, 'f-e8067bb7d38bf009', 'freeze', 'licet freeze', 'deny', '2026-03-04T12:20:00.000000Z', '\x534ee43e2818d7ce14cb2801b33e6efb71c8482e83cff404a8f5d32ce2ab95ac', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22662d65383036376262376433386266303039222c226b696e64223a22667265657a65222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a35373965373138393163336136326333306366383962393537343739316538343265353733313130353334316331623530383661613931346661386464623631222c22707572706f7365223a6e756c6c2c22726561736f6e223a2246524f5a454e222c227265636f72646564223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a2261637473206f6e20746865207374617465222c227374617465223a7b2261626f7574223a5b5d2c226167656e74223a226465736b222c226279223a22636f6d6d616e64222c22746f6f6c223a22636f756e74222c22776879223a22737472616e67652063616c6c73227d2c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22746f6f6c223a226c6963657420667265657a65222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\x7ada2f752e1c35d75a222eda2c845b9f', '843'),
	('licet', 'acts on the state', 3, 'f-f312596b1a9eb3ea', 'freeze', 'licet freeze', 'deny', '2026-03-04T12:20:00.000000Z', '\xa6d789375860c7d7463718cba50c068038adeba173ca10d46439ee6e01fa03ee', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22662d66333132353936623161396562336561222c226b696e64223a22667265657a65222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a35333465653433653238313864376365313463623238303162333365366566623731633834383265383363666634303461386635643332636532616239356163222c22707572706f7365223a6e756c6c2c22726561736f6e223a2246524f5a454e222c227265636f72646564223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a2261637473206f6e20746865207374617465222c227374617465223a7b2261626f7574223a5b5d2c226167656e74223a226f74686572222c226279223a22636f6d6d616e64222c22776879223a2261206472696c6c227d2c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22746f6f6c223a226c6963657420667265657a65222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a2264656e79227d', '\xc678c9ed2db3cab2e86416442f1e2217', '845'),
	('licet', 'acts on the state', 4, 't-f05b9a36a5b8dbf6', 'thaw', 'licet thaw', 'allow', '2026-03-04T12:20:00.000000Z', '\x53189b80f67b9266c250a4e803997e00fc21a117d7625227643fc623320c6718', '\x7b226167656e74223a226c69636574222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a6e756c6c2c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b5d2c22666f726d6174223a322c226964223a22742d66303562396133366135623864626636222c226b696e64223a2274686177222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a22222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a61366437383933373538363063376437343633373138636261353063303638303338616465626131373363613130643436343339656536653031666130336565222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b5d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a6e756c6c2c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a342c2273657373696f6e223a2261637473206f6e20746865207374617465222c227374617465223a7b2261626f7574223a5b22662d66333132353936623161396562336561225d2c22616374223a227b5c2261626f75745c223a5b5c22662d663331323539366231613965623365615c225d2c5c226163745c223a5c22746861775c222c5c22666f726d61745c223a312c5c226c65646765725c223a5c2235316532653033636266346339346531313564313062313336643561303635305c222c5c226e6f6e63655c223a5c2238303039633062666630613033323831646566333430393436326331363734615c222c5c2274696d655c223a5c22323032362d30332d30345431323a32303a30302e3030303030305a5c227d222c226279223a22656432353531393a31554c4f3046636738306437712d477269724a58576c4b3669386e506f796232704e75706a64654e5a6f77222c227369676e6174757265223a226564316135653932353431383734366536623830316562393561393632313231343838333134383434623630623432633666653130313061363163376563386366323432306338393564663063646164623930633433353666646633343934383933663437343364666231386431303564646538343134366137633339323063227d2c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a222c22746f6f6c223a226c696365742074686177222c22746f6f6c5f646967657374223a6e756c6c2c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xd57987453a292209b1b0d3584f6f5d86', '846'),
	('desk', 'over', 2, 'r-efc709906eff-21', 'receipt', 'count', 'allow', '2026-03-04T12:19:00.000000Z', '\x1567185a3f5709e4c8c807c0e1c1d800b5fd8c792588f63cc203f803225c703c', '\x7b226167656e74223a226465736b222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a61656263636135663264613439393931343062303833303266616566313630666231656530656665396261646238343135623463623537633162396365306466222c22626f64696573223a7b22617267756d656e7473223a227b5c22737465705c223a327d222c22726573756c74223a2232227d2c22627564676574223a7b226166746572223a7b2263616c6c73223a312c2263616c6c735f6f665f746f6f6c223a312c2263616c6c735f746f646179223a31332c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d2c226265666f7265223a7b2263616c6c73223a302c2263616c6c735f6f665f746f6f6c223a302c2263616c6c735f746f646179223a31322c22636f73745f757364223a2230222c22636f73745f7573645f6f665f746f6f6c223a2230222c22636f73745f7573645f746f646179223a22312e3235227d7d2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a636f756e74222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a224275646765745265736572766564227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2273746f726167653a726561643a73657373696f6e222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a2260636f756e7460206e656564732073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3737293b2073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229227d2c7b226361706162696c697479223a2273746f726167653a77726974653a73657373696f6e222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a2260636f756e7460206e656564732073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3737293b2073746f726167653a2a3a73657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3229227d2c7b226b696e64223a22427564676574536574746c6564227d5d2c22666f726d6174223a322c226964223a22722d6566633730393930366566662d3231222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a32396661613836666438626163616532666135643039666137616331363237623364356566626163653261363438383665663463356634613437383966336366222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22726573756c74223a227368613235363a64343733356533613236356531366565653033663539373138623962356430333031396330376438623663353166393064613361363636656563313361623335222c2272756c6573223a5b2260636f756e74602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6465736b2e79616d6c3a3829225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226f766572222c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22746f6f6c223a22636f756e74222c22746f6f6c5f646967657374223a227368613235363a33303736353634653063356231363133336439653764663439633735666134626436373262653530636661303031323666643936333639353064373536623730222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xbcc57feb1369b7e605087d5e6eaf2ccc', '831');
INSERT INTO licet.entries VALUES
	('assistant', 'mail', 1, 'r-bb8091592708-1', 'decision', 'read_mail', 'allow', '2026-03-04T12:19:00.000000Z', '\xc637cf930d8cd80160e31c04f493611672d82945e064ff4052beb679fc245458', '\x7b226167656e74223a22617373697374616e74222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a32303131643762306661653238326130656163666562626139393431323232613037613735636362613331313661336638613238353937306633306238393230222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a6e756c6c2c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a6e756c6c2c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a726561645f6d61696c222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d5d2c22666c6f77223a7b227461696e7465645f6279223a5b5d7d2c22666f726d6174223a322c226964223a22722d6262383039313539323730382d31222c226b696e64223a226465636973696f6e222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a62326434643864383662613433663234313134616163386133663165386236643633323062313335636239333531373362343733313433623863313133303234222c22706172656e74223a6e756c6c2c2270726576696f7573223a6e756c6c2c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2260726561645f6d61696c602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a312c2273657373696f6e223a226d61696c222c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22746f6f6c223a22726561645f6d61696c222c22746f6f6c5f646967657374223a227368613235363a39383035386232343431306166623065343037633433613963376135633338396336623465646466363864336361616237303533343836643539663165393638222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\xca7ea36f1928ca52301091d2eac90c84', '837'),
	('assistant', 'mail', 2, 'r-bb8091592708-1', 'receipt', 'read_mail', 'allow', '2026-03-04T12:19:00.000000Z', '\x6aadf04caffd58f8ca00bd030ff3e608ecddd978ef9d040e660b356a2c49f2c2', '\x7b226167656e74223a22617373697374616e74222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a32303131643762306661653238326130656163666562626139393431323232613037613735636362613331313661336638613238353937306633306238393230222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a226f6b222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a6e756c6c2c226576656e7473223a5b7b226b696e64223a2253657373696f6e4f70656e6564227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a726561645f6d61696c222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a22227d2c7b226b696e64223a2253616e64626f78456e7465726564227d2c7b226361706162696c697479223a2266733a726561643a2f6465736b2f696e626f782f657665222c226b696e64223a224361706162696c6974794772616e746564222c22726561736f6e223a22222c2272756c65223a2260726561645f6d61696c60206e656564732066733a726561643a2f6465736b2f696e626f7820282f776f726b2f74727574682f74657374732f6f6c6465722f6465736b2e70793a3933293b2066733a726561643a2f6465736b2f696e626f7820282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3729227d5d2c22666c6f77223a7b227461696e7465645f6279223a5b5d2c227461696e7473223a747275657d2c22666f726d6174223a322c226964223a22722d6262383039313539323730382d31222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a62326434643864383662613433663234313134616163386133663165386236643633323062313335636239333531373362343733313433623863313133303234222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a63363337636639333064386364383031363065333163303466343933363131363732643832393435653036346666343035326265623637396663323435343538222c22707572706f7365223a6e756c6c2c22726561736f6e223a22414c4c4f574544222c227265636f72646564223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22726573756c74223a227368613235363a33306339333835383935366362373632636539663561366263653431653533313965323534363837373039643861393261333435363566633937366534663233222c2272756c6573223a5b2260726561645f6d61696c602069732061646d697474656420282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3429225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b2268616e646c6573222c226465636c617265642c206e6f7420656e666f72636564225d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a322c2273657373696f6e223a226d61696c222c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22746f6f6c223a22726561645f6d61696c222c22746f6f6c5f646967657374223a227368613235363a39383035386232343431306166623065343037633433613963376135633338396336623465646466363864336361616237303533343836643539663165393638222c227472756e6361746564223a66616c73652c2276657264696374223a22616c6c6f77227d', '\x5115cea7307a06d4a8eab5f277f5e8e2', '839'),
	('assistant', 'mail', 3, 'r-bb8091592708-2', 'receipt', 'send_mail', 'ask', '2026-03-04T12:19:00.000000Z', '\xb6836b2274c03466c6788492b3d84fcbf7f4708c4778fa05f5ea542b3a0a1bcf', '\x7b226167656e74223a22617373697374616e74222c22617070726f76616c73223a5b5d2c22617267756d656e7473223a227368613235363a66306637646363386135396334613464303334333632336338373566376235306134663237333037336166636230343632663366626561616431333065373430222c22627564676574223a6e756c6c2c2263616c6c6572223a6e756c6c2c22636f6465223a2264656e696564222c22636f73745f757364223a2230222c226475726174696f6e5f6d73223a22302e303030222c226572726f72223a22464c4f575f4f524947494e3a2073656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f7465222c226576656e7473223a5b7b226b696e64223a22417070726f76616c41736b6564222c2272756c65223a2273656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f746520282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3429227d2c7b226b696e64223a22417070726f76616c416e737765726564222c2272756c65223a22616273656e74227d2c7b226361706162696c697479223a22746f6f6c3a63616c6c3a73656e645f6d61696c222c226b696e64223a224361706162696c69747944656e696564222c22726561736f6e223a22464c4f575f4f524947494e222c2272756c65223a2273656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f746520282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a34293b20636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a33293b207265717565737420612d62643361303834393461666220776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31393a30302e3030305a227d5d2c22666c6f77223a7b2272657175657374223a22612d626433613038343934616662222c227461696e7465645f6279223a5b22722d6262383039313539323730382d31225d2c22756e6d6574223a5b7b22616c6c6f776564223a5b5d2c226f726967696e73223a5b5d2c22726561736f6e223a22464c4f575f4f524947494e222c2272756c65223a222f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a34227d5d7d2c22666f726d6174223a322c226964223a22722d6262383039313539323730382d32222c226b696e64223a2272656365697074222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c226d616e6966657374223a227368613235363a62326434643864383662613433663234313134616163386133663165386236643633323062313335636239333531373362343733313433623863313133303234222c22706172656e74223a6e756c6c2c2270726576696f7573223a227368613235363a36616164663034636166666435386638636130306264303330666633653630386563646464393738656639643034306536363062333536613263343966326332222c22707572706f7365223a6e756c6c2c22726561736f6e223a22464c4f575f4f524947494e222c227265636f72646564223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22726573756c74223a6e756c6c2c2272756c6573223a5b2273656e645f6d61696c206d61792077726974652c2061667465722074657874207468617420736f6d65626f647920656c73652077726f746520282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3429222c22636c6173732077726974655f6c696d697465642061736b73206f6e636520612073657373696f6e20282f776f726b2f74727574682f74657374732f6f6c6465722f66393332653761612f706f6c69636965732f6d61696c2e79616d6c3a3329222c227265717565737420612d62643361303834393461666220776169747320666f7220616e20616e7377657220756e74696c20323032362d30332d30355431323a31393a30302e3030305a225d2c2273616e64626f78223a7b22616363657373223a6e756c6c2c226c6179657273223a5b5d2c226c6576656c223a226e6174697665222c2270726f6772616d73223a6e756c6c7d2c2273657175656e6365223a332c2273657373696f6e223a226d61696c222c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a222c22746f6f6c223a2273656e645f6d61696c222c22746f6f6c5f646967657374223a227368613235363a65336133336136613536323031373736626132303732376638663633646131353531643830353837623163303538646162383863353931636436613761396138222c227472756e6361746564223a66616c73652c2276657264696374223a2261736b227d', '\x0018d5aeee27f611717611a903db7306', '841');

--
-- Data for Name: heads; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.heads VALUES
	(0, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a65336230633434323938666331633134396166626634633839393666623932343237616534316534363439623933346361343935393931623738353262383535222c2273697a65223a302c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a227d', '\x92156989c04431b71460a221b6d158312c0195ccbf7fa6ac7a276d3d4a3eb9e5b99f244c21a125c040a1f7111277eb7077a55416f8a2b11ec9503af83d3ba704', '\x', '3', '2026-03-04 12:00:00+00'),
	(8, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a39656538633733313262623162363434623931383438643366373235623334333638313539393535393037623464353531646534373638393535333539656338222c2273697a65223a382c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a227d', '\xf4335024e926ed7caf3b823efe3f7839a36812ed63bc95a79a67b113edaf642096676462859f3533854c25402be724acb00938f7ff058ef4287aca85449da406', '\x9ee8c7312bb1b644b91848d3f725b34368159955907b4d551de4768955359ec8', '737', '2026-03-04 12:00:00+00'),
	(11, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a61366233613361376461376366326133393133343539313964613230376463383930356163666162396431666264633135393833386366343734383633393061222c2273697a65223a31312c2274696d65223a22323032362d30332d30345431323a30313a30302e3030303030305a227d', '\xf655049b3d70295790733dd706e0fe483894c111d73c4231377cc5e7b4ee63681cc375d35e953438eb1a8864f09bc3d0b160bf944c69ebe48cc6f86f4e328204', '\x9ee8c7312bb1b644b91848d3f725b34368159955907b4d551de4768955359ec869b41c8d1c52063730f0dc821c4e5da816894c2a82c64b432f595a8b6ee97caa9397f25349a4b7c39a2a4be4b5b46cbfabac270df49bb620bfb41ffd9209592d', '744', '2026-03-04 12:00:00+00'),
	(23, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a39333266356266343838316661636266613965366264616230326635313030653865373162333239356335623664396537626265333236336531653436353661222c2273697a65223a32332c2274696d65223a22323032362d30332d30345431323a30393a30302e3030303030305a227d', '\xc93e6ddf727f080dfde170db59606299592c97b1ef05fcd24a57234790effac43694669c304810de015da813be39abe1f325aa2fcb530880e85144448a14080d', '\x0689ba1d0441ba5065afb1cfd07e01e06a8d80ef1c4176cb385494b1fb6e4cbec071959e3acab5447087b85cb72b2829682340c056b74313498b16f65fdf932b909bc91b4d3ccdd5db28b6c8cb732c355d9e066d1b14b7b2ff183bacaf01aaed4c4fdf5ccfa3646e773bb5d49012aa2709e3b087ce424385622748eb82d564d8', '770', '2026-03-04 12:00:00+00'),
	(35, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a33643763383637356266663130316336303064666430333663333834313331663065613039626632353439646266363839386139313761663030343135656438222c2273697a65223a33352c2274696d65223a22323032362d30332d30345431323a31353a30302e3030303030305a227d', '\x40974f9a363e022d49113c6685502ecd9f056ced15f82a6d70d9673959175b8ea3baf55763728bad296cf9ec1537a20d4d651ab246fbc605679d33a80ae59504', '\x4ea4e074c81ad90b7705f87a99edf0808a33ecc403dc70d66eaf7a7293c328f23ad994413d5969d2d5fc73a1e5af5892cfb6539e36c7c5e29b0f72f54a3d90b59a89f0b738702d0e851ed1916cfba49eab916aaf49d89daccfc2c003df98a958', '802', '2026-03-04 12:00:00+00'),
	(45, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a37303039343563383465383238393465376466613339366538653765386663633937653564613235623832316531323838636263623466343262623632323032222c2273697a65223a34352c2274696d65223a22323032362d30332d30345431323a31393a30302e3030303030305a227d', '\xc47e9048cd4315341c2468d40d70a808886ee9fb779bda1ab31507f9d56858ef764946749d2ddae0b1d4411fcfdf39a2deb245116e60d4f7e9c6686062efd904', '\x4ea4e074c81ad90b7705f87a99edf0808a33ecc403dc70d66eaf7a7293c328f2cd107637b40882830a67c8944e99f74573a1555df2eed9d6247bd3853221f4112c058b6dab4e024fd71855efddbddff0b0c3cc61704f3fa8622bd89d0f563b8c8415064b85e72446bf0ede47567f8bac06d8ed031941e02cba3d2a7efbcecc1e', '826', '2026-03-04 12:00:00+00'),
	(53, '\x7b22666f726d6174223a322c226b6579223a22656432353531393a6e627153524c7462707237343743316c664a5a7733627a553758583755377a4c70724c347139577443736b222c226b696e64223a22636865636b706f696e74222c226c6564676572223a223531653265303363626634633934653131356431306231333664356130363530222c22726f6f74223a227368613235363a33396236626436613763396566623338636338363630396565626331396533633637313935386236666337363161653132653633613837636463613634616234222c2273697a65223a35332c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a227d', '\x5d06c5ea4ae6f7e4209a257065b643a365aa14ea145ac8964afe893569b8940ce64c37641f293e9e0471971f75da19ad54cbb2783b39ca1a1c68ca24c7d7fa0e', '\x4ea4e074c81ad90b7705f87a99edf0808a33ecc403dc70d66eaf7a7293c328f23d6327ae06b620cfe779abad5d233ed54d1dc4e66b612c394109bf6cf313e2763cdce0046fd3d3d6d830594e1654d40bd59a7928e6ef5572ce989da9b8e7aaf153189b80f67b9266c250a4e803997e00fc21a117d7625227643fc623320c6718', '848', '2026-03-04 12:00:00+00');

--
-- Data for Name: kept_calls; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.kept_calls VALUES
	('desk', 'kept', 'pay', 'order-1', 'r-efc709906eff-15', '2026-03-04 12:00:00+00', '2026-03-04 12:00:00+00', '\x7b226167656e74223a226465736b222c22617267756d656e7473223a227368613235363a30346164366161643837613366363133326230643138346136326664326334363537353762303039636438386161316635653638653838356366373433643436222c22666f726d6174223a312c226964223a226f726465722d31222c226e6f6465223a22656432353531393a754e5f6145696b6c595339444a6776384d563966474f33576e516d4f74336c676d68636c4956705f7a4f4d222c2272656365697074223a22722d6566633730393930366566662d3135222c22726573756c74223a227368613235363a64323736613631646433623330393366623531633430663964376434386130346133393236396633373866613763626235346464383566306630626135383138222c2273657373696f6e223a226b657074222c22746f6f6c223a22706179222c22756e74696c223a313737323731323930307d', '\x558f6f0211baf970aaabc5728d0f867c34008f12b01dda5dd7e4401d76075249084aed4689d903fe3a8bd33f24a71f2b1226bf84760ba8362710e2f403129b05', '\x7b22666f726d6174223a312c22706f6c696379223a227368613235363a34386338613861376638316664333231343630396538356361636562343264626235326465363864353663663139653062666337663039326163356634373435222c22636f6465223a226f6b222c22726561736f6e223a22414c4c4f574544222c226572726f72223a22222c2276616c7565223a225c2270616964206b6570745c22222c227472756e6361746564223a66616c73652c2273697a65223a31312c2262726f75676874223a6e756c6c7d'),
	('desk', 'kept', 'pay', 'order-2', 'r-efc709906eff-17', '2026-03-04 12:00:00+00', '2026-03-04 12:00:00+00', '\x7b226167656e74223a226465736b222c22617267756d656e7473223a227368613235363a32303038663830636635643230646133623165353439313237373838363964393161386438663966336561353434646162323163353133626630333566386433222c22666f726d6174223a312c226964223a226f726465722d32222c226e6f6465223a22656432353531393a754e5f6145696b6c595339444a6776384d563966474f33576e516d4f74336c676d68636c4956705f7a4f4d222c2272656365697074223a22722d6566633730393930366566662d3137222c22726573756c74223a6e756c6c2c2273657373696f6e223a226b657074222c22746f6f6c223a22706179222c22756e74696c223a313737323731333032307d', '\x5b0c2e96a207e410c19a34cc9c3fb468704af4daff4ac31b29c3faa9112bb2624d275f2dbc1f35fc81aaa0ebad2e31ee632f896c19fd69f344e13c3ab4a80f04', NULL);

--
-- Data for Name: kv_entries; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.kv_entries VALUES
	('\x73657373696f6e3a636f756e74696e67406465736b', '\x746f74616c', '2', NULL),
	('\x6c696365743a656e646564', '\x6465736b0a6f766572', 'true', NULL),
	('\x6c696365743a656e646564', '\x73657373696f6e3a6f766572406465736b', 'true', NULL),
	('\x706572736f6e616c6974792f6465736b', '\x636f6c6f7572', '{"name":"blue"}', NULL),
	('\x706572736f6e616c6974792f6465736b', '\x676f6e65', '1', 1772626800);

--
-- Data for Name: kv_sizes; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.kv_sizes VALUES
	('\x73657373696f6e3a636f756e74696e67406465736b', 70),
	('\x6c696365743a656e646564', 162),
	('\x706572736f6e616c6974792f6465736b', 154);

--
-- Data for Name: kv_writes; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.kv_writes VALUES
	('af23e1c7-639e-a0c8-6342-ca3b49c52529', 0, '2026-03-04 12:00:00+00'),
	('b0bfb516-210f-f38f-978a-1246cd09cc91', 0, '2026-03-04 12:00:00+00'),
	('25acc39d-95b8-41c5-9474-91a5ac0440f0', 0, '2026-03-04 12:00:00+00'),
	('ac127189-4a27-0542-4bfd-7ed98ce73e5a', 0, '2026-03-04 12:00:00+00'),
	('9d45d7fd-325a-9c22-52f4-13f0bc4dd3c3', 0, '2026-03-04 12:00:00+00'),
	('0ef0d464-9f7f-22ef-3ac7-65abae04a968', 0, '2026-03-04 12:00:00+00'),
	('271bcf67-19fb-6e8d-f6a2-a60222911237', 0, '2026-03-04 12:00:00+00');

--
-- Data for Name: leases; Type: TABLE DATA; Schema: licet; Owner: -
--

--
-- Data for Name: ledger; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.ledger VALUES
	(true, '51e2e03cbf4c94e115d10b136d5a0650', 'ed25519:nbqSRLtbpr747C1lfJZw3bzU7XX7U7zLprL4q9WtCsk', '2026-03-04 12:00:00+00', '');

--
-- Data for Name: places; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.places VALUES
	(1, '\x6c749b1c5dbb3ed380c6c12fec0b7284557132b653da9e39d6860494e6f6f4d4', 'licet', 'nodes of the state', 1),
	(2, '\xb6766594146c440ec6a7aa72041bcc0db818ad8c072abe21769d8a7c4caea864', 'desk', 'programs', 1),
	(3, '\xd4f6b946aa15b405cd303080abe78000c173479d8b40f8b859d9afd2c4645248', 'desk', 'programs', 2),
	(4, '\x356af9a3c563b53d8a57d281b1f89a2696f0e953dfc0f44be0fb9beed54b0d03', 'desk', 'programs', 3),
	(5, '\x450d64c7bd437f07533bf4e856162bf592d308b7dfb7546d3d1e7b3d25047e2c', 'desk', 'programs', 4),
	(6, '\x8686d75917c0c41d7179a56952477fcb2f2f228dfe6b422215611ba50db582fe', 'desk', 'programs', 5),
	(7, '\x090f4a5f5c27a592e7ce9633cbc2dea621f3a040f8525c16ae82255b52d3dbc3', 'desk', 'programs', 6),
	(8, '\x8a90f3596286b4cfb9a1180f0d0059a44c25517d5a02e16229ee2a5f3b7485c2', 'desk', 'programs', 7),
	(9, '\x02fa07c5b0973f2fc2b98e925207d82fd2f7b051505d4611ff3e956159e5d308', 'licet', 'nodes of the state', 2),
	(10, '\x579e71891c3a62c30cf89b9574791e842e5731105341c1b5086aa914fa8ddb61', 'licet', 'acts on the state', 1),
	(11, '\x9397f25349a4b7c39a2a4be4b5b46cbfabac270df49bb620bfb41ffd9209592d', 'desk', 'main', 1),
	(12, '\xeda36cbf92d5bca7507def03eb1b8691d74141cce2b9ccb71b3f299dfe9574e5', 'desk', 'main', 2),
	(13, '\xe7463e52ac4009932753de494c5b787caa84621ba9f2b1d4aa9466854cf3a2d6', 'desk', 'main', 3),
	(14, '\xd7f6337fda6d06d88ddf980477ca634d2985d4f6c69e67a2aaf3b33a082571cc', 'desk', 'main', 4),
	(15, '\x50638652c6c833a127456a7780687e9d65666d08ff9a2f89fade51020e840369', 'desk', 'main', 5),
	(16, '\xf6da2a2550b26583227a23072217b1d5d723adc37106ba71021dcbf6a30d4726', 'desk', 'main', 6),
	(17, '\x991de71585a90dfc144b26eef961df7bb87305788c36da5152617502220f900b', 'desk', 'main', 7),
	(18, '\xaca519a8c2bd33efd7d01a0f0538a8f7cacb481f94c6221d47fd43a4316dd1b7', 'desk', 'main', 8),
	(19, '\xae5adfe1af0469f1a55c4b216d39adc58b6d2e6cf1745f467bff5e24983790e5', 'desk', 'main', 9),
	(20, '\x229fecb9f026d1b909505563749a3096517718a99e9abb5a455d6a876ddcb6bd', 'desk', 'main', 10),
	(21, '\xdc221fbc8af4f641a507ef6d5726d43c4944049912d2743e6a877f271aa1a399', 'desk', 'main', 11),
	(22, '\x396a0922241dca94952dc1f44b80711687e0ea0b0ae9de27794e55133632e969', 'desk', 'main', 12),
	(23, '\x4c4fdf5ccfa3646e773bb5d49012aa2709e3b087ce424385622748eb82d564d8', 'desk', 'main', 13),
	(24, '\x2af20ad2eb80ac6ac681bc827bcb46fa97de57e014cb4d0adbc2e19b4bededf6', 'desk', 'main', 14),
	(25, '\x190068f077be5e0fb200e52c2df809c91f79103e15929bda6dad5d03f4bafe3b', 'desk', 'main', 15),
	(26, '\x1403e72d68223597cb6208e9a099a353e2f04beb4251011202bf3ca5a9e90c13', 'desk', 'main', 16),
	(27, '\x489bc234d59d694947f7d341c3abc6a95e8ab6162e026b6999780e27ca3f719e', 'desk', 'main', 17),
	(28, '\x8757fad0157a1e66a1d11a9f29ce0ab85048adc5bd824da218dabe515ffb70cf', 'signer', 'signed', 1),
	(29, '\x648adb8fe3030d7c2b1f873630254ea439bd17c8f6c2ca5fe377324dc1b67915', 'desk', 'standing approvals', 1),
	(30, '\x2650c838b9c117b9e39c45477e64ef91aef87e3e67e4fc27eaceaf050c737b23', 'desk', 'standing approvals', 2),
	(31, '\xdef2f79a8ec2d5e372a089c1520f5ea836e868f0bbc60c3386c1bb5f03a388a3', 'desk', 'standing approvals', 3),
	(32, '\xd4bc5929022001900ad56c528ba4af0aa286c6ddd7ee2c0597f688e51a11ac46', 'desk', 'spent', 1),
	(33, '\xacad3cc9e9e13f9e97f0ad5a87407399a221521e29aff4153bce269cbb232e7c', 'desk', 'spent', 2),
	(34, '\xf72bd98f209e8ec45b7a9b9059d4e9b80cb7badc162fdd7e047f9b93b791bb50', 'desk', 'spent', 3),
	(35, '\x9a89f0b738702d0e851ed1916cfba49eab916aaf49d89daccfc2c003df98a958', 'desk', 'spent', 4),
	(36, '\x935e119908ce591287b24cde2a7fbcbc3bf50931e3e8bb3ba790f670365b7008', 'desk', 'kept', 1),
	(37, '\x18ab6b2bdaed7dec9dc845cd9c1987fc8924df6e3476508230116211ba72baf7', 'desk', 'kept', 2),
	(38, '\x3c208711a51b6aa1817f78d061798a4d2932a94f6968060c6a1386b5f9f86f8d', 'desk', 'kept', 3),
	(39, '\x7a08599b70ffe8a9636206f898d521bf3ae427a5483ad0b72f463741840712d9', 'desk', 'kept', 4),
	(40, '\xf748708fec4c0e033dd34ae7060ff1920e795dccd5d2646f4afad32f7f429e8d', 'desk', 'kept', 5),
	(41, '\xb440b92e52d57088d0eec62879df7fa046e18183bd46456cd4073bfddcedb05c', 'desk>helper', 'main', 1),
	(42, '\x3b8668da7cfcaf20ce46cf10be31b036b84faeda9a461996fbf35df15fb41776', 'desk>helper', 'main', 2),
	(43, '\xccb79e73b6f9e2909711bb13a17552bb1759c49181d72813488119d4612fde85', 'desk>helper', 'main', 3),
	(44, '\x545071b5a023fd1c30ad881b18b172793cc703e0015e104e8dc20da4363e9370', 'desk', 'counting', 1),
	(45, '\x8415064b85e72446bf0ede47567f8bac06d8ed031941e02cba3d2a7efbcecc1e', 'desk', 'counting', 2),
	(46, '\x29faa86fd8bacae2fa5d09fa7ac1627b3d5efbace2a64886ef4c5f4a4789f3cf', 'desk', 'over', 1),
	(47, '\x1567185a3f5709e4c8c807c0e1c1d800b5fd8c792588f63cc203f803225c703c', 'desk', 'over', 2),
	(48, '\xc637cf930d8cd80160e31c04f493611672d82945e064ff4052beb679fc245458', 'assistant', 'mail', 1),
	(49, '\x6aadf04caffd58f8ca00bd030ff3e608ecddd978ef9d040e660b356a2c49f2c2', 'assistant', 'mail', 2),
	(50, '\xb6836b2274c03466c6788492b3d84fcbf7f4708c4778fa05f5ea542b3a0a1bcf', 'assistant', 'mail', 3);
INSERT INTO licet.places VALUES
	(51, '\x534ee43e2818d7ce14cb2801b33e6efb71c8482e83cff404a8f5d32ce2ab95ac', 'licet', 'acts on the state', 2),
	(52, '\xa6d789375860c7d7463718cba50c068038adeba173ca10d46439ee6e01fa03ee', 'licet', 'acts on the state', 3),
	(53, '\x53189b80f67b9266c250a4e803997e00fc21a117d7625227643fc623320c6718', 'licet', 'acts on the state', 4);

--
-- Data for Name: reservations; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.reservations VALUES
	('b-813f6f1d3d39709f6e061474', 'desk', 'main', 'look', '2026-03-04', 1, 0, 0, 0, 0, 0, 0, 0, NULL, '744', '2026-03-04 12:00:00+00'),
	('b-0e078336f0bb34466f824529', 'desk', 'main', 'look', '2026-03-04', 1, 0, 1, 0, 1, 0, 1, 0, NULL, '749', '2026-03-04 12:00:00+00'),
	('b-1617fee52efc2437346bde04', 'desk', 'main', 'fail', '2026-03-04', 1, 0, 2, 0, 0, 0, 2, 0, NULL, '754', '2026-03-04 12:00:00+00'),
	('b-49de34a845c44f18c4054982', 'desk', 'main', 'note', '2026-03-04', 1, 0, 3, 0, 0, 0, 3, 0, NULL, '768', '2026-03-04 12:00:00+00'),
	('b-16b5e3e88c3864675ca95b24', 'desk', 'main', 'jot', '2026-03-04', 1, 0, 4, 0, 0, 0, 4, 0, NULL, '777', '2026-03-04 12:00:00+00'),
	('b-7ec1585669641f8dd38b842e', 'desk', 'spent', 'pay', '2026-03-04', 1, 0.25, 0, 0.00, 0, 0.00, 5, 0.00, NULL, '794', '2026-03-04 12:00:00+00'),
	('b-b49f9aae7d3fb849837d3637', 'desk', 'spent', 'pay', '2026-03-04', 1, 0.25, 1, 0.25, 1, 0.25, 6, 0.25, NULL, '798', '2026-03-04 12:00:00+00'),
	('b-ea0d6b7e1f50e1a7c72a4ab4', 'desk', 'crashed', 'pay', '2026-03-04', 1, 0.25, 0, 0.00, 0, 0.00, 7, 0.50, 'b-ea0d6b7e1f50e1a7c72a4ab4', '802', NULL),
	('b-469310e5b58c2a688ff4212b', 'desk', 'kept', 'pay', '2026-03-04', 1, 0.25, 0, 0.00, 0, 0.00, 8, 0.75, NULL, '805', '2026-03-04 12:00:00+00'),
	('b-7745c0a3f0ab6fd631d73c93', 'desk', 'kept', 'pay', '2026-03-04', 1, 0.25, 1, 0.25, 1, 0.25, 9, 1.00, NULL, '812', '2026-03-04 12:00:00+00'),
	('b-964ff061c164d5046f9971de', 'desk', 'main', 'look', '2026-03-04', 1, 0, 5, 0, 2, 0, 10, 1.25, NULL, '816', '2026-03-04 12:00:00+00'),
	('b-db7b1c08e52fe949fc5ec30b', 'desk', 'counting', 'count', '2026-03-04', 1, 0, 0, 0, 0, 0, 11, 1.25, NULL, '821', '2026-03-04 12:00:00+00'),
	('b-ddf55c5f54ff0e98334fedbe', 'desk', 'over', 'count', '2026-03-04', 1, 0, 0, 0, 0, 0, 12, 1.25, NULL, '826', '2026-03-04 12:00:00+00');

--
-- Data for Name: state_acts; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.state_acts OVERRIDING SYSTEM VALUE VALUES
	(1, 'o-ea0cea81832c822c', 'operators', NULL, NULL, '', '\x7b2266616374223a7b2261626f7574223a5b22656432353531393a31554c4f3046636738306437712d477269724a58576c4b3669386e506f796232704e75706a64654e5a6f77225d2c226279223a22636f6d6d616e64227d2c226964223a226f2d65613063656138313833326338323263222c226b696e64223a226f70657261746f7273222c2274696d65223a22323032362d30332d30315431323a30303a30302e3030303030305a227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x241edd3e8d4e3f52a5a98960e636d82919baf65e3d188ae650f3d2a910190f360b73c3b774f50ac0548c00f5f2b4d67fc06eea57e2b65ea42810457c1817e703'),
	(2, 'f-e8067bb7d38bf009', 'freeze', 'desk', 'count', 'strange calls', '\x7b2266616374223a7b2261626f7574223a5b5d2c226167656e74223a226465736b222c226279223a22636f6d6d616e64222c22746f6f6c223a22636f756e74222c22776879223a22737472616e67652063616c6c73227d2c226964223a22662d65383036376262376433386266303039222c226b696e64223a22667265657a65222c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\xbe79c802a9b5ad2e3d9fd453dce5c8dcea5b2116eff666132793003dd9bc766d975d82f94b08e7373008e12ad15408379d13b236c096df50fec383c359a3e10a'),
	(3, 'f-f312596b1a9eb3ea', 'freeze', 'other', NULL, 'a drill', '\x7b2266616374223a7b2261626f7574223a5b5d2c226167656e74223a226f74686572222c226279223a22636f6d6d616e64222c22776879223a2261206472696c6c227d2c226964223a22662d66333132353936623161396562336561222c226b696e64223a22667265657a65222c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x71ca83e061af235803ddb294a5e58ed8175e603c509c3d59f59c3907b68be67aa62f52ea38cfd892a4736d6cd568c6377913268807d1881960af7176393ca20c'),
	(4, 't-f05b9a36a5b8dbf6', 'thaw', NULL, NULL, '', '\x7b2266616374223a7b2261626f7574223a5b22662d66333132353936623161396562336561225d2c22616374223a227b5c2261626f75745c223a5b5c22662d663331323539366231613965623365615c225d2c5c226163745c223a5c22746861775c222c5c22666f726d61745c223a312c5c226c65646765725c223a5c2235316532653033636266346339346531313564313062313336643561303635305c222c5c226e6f6e63655c223a5c2238303039633062666630613033323831646566333430393436326331363734615c222c5c2274696d655c223a5c22323032362d30332d30345431323a32303a30302e3030303030305a5c227d222c226279223a22656432353531393a31554c4f3046636738306437712d477269724a58576c4b3669386e506f796232704e75706a64654e5a6f77222c227369676e6174757265223a226564316135653932353431383734366536623830316562393561393632313231343838333134383434623630623432633666653130313061363163376563386366323432306338393564663063646164623930633433353666646633343934383933663437343364666231386431303564646538343134366137633339323063227d2c226964223a22742d66303562396133366135623864626636222c226b696e64223a2274686177222c2274696d65223a22323032362d30332d30345431323a32303a30302e3030303030305a227d', 'ed25519:uN_aEiklYS9DJgv8MV9fGO3WnQmOt3lgmhclIVp_zOM', '\x83f5c1d416e9af763f1473695cbca95094d82b057530c4e451611debe6587172536cfc882f2bb95006060da4150b646bb4f4ae83a42f9d3a2b951dfd15f94d01');

--
-- Data for Name: steps; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.steps VALUES
	(1, 'kv', '2026-03-04 12:00:00+00'),
	(2, 'ledger', '2026-03-04 12:00:00+00'),
	(3, 'budgets', '2026-03-04 12:00:00+00'),
	(4, 'approvals', '2026-03-04 12:00:00+00'),
	(5, 'freezes', '2026-03-04 12:00:00+00'),
	(6, 'kept_calls', '2026-03-04 12:00:00+00'),
	(7, 'opening', '2026-03-04 12:00:00+00');

--
-- Data for Name: thawed; Type: TABLE DATA; Schema: licet; Owner: -
--

INSERT INTO licet.thawed VALUES
	('f-f312596b1a9eb3ea');

--
-- Name: approval_answers_place_seq; Type: SEQUENCE SET; Schema: licet; Owner: -
--

SELECT pg_catalog.setval('licet.approval_answers_place_seq', 8, true);

--
-- Name: approval_requests_place_seq; Type: SEQUENCE SET; Schema: licet; Owner: -
--

SELECT pg_catalog.setval('licet.approval_requests_place_seq', 10, true);

--
-- Name: state_acts_number_seq; Type: SEQUENCE SET; Schema: licet; Owner: -
--

SELECT pg_catalog.setval('licet.state_acts_number_seq', 4, true);

--
-- Name: approval_answers approval_answers_id_key; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_answers
    ADD CONSTRAINT approval_answers_id_key UNIQUE (id);

--
-- Name: approval_answers approval_answers_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_answers
    ADD CONSTRAINT approval_answers_pkey PRIMARY KEY (place);

--
-- Name: approval_requests approval_requests_id_key; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_requests
    ADD CONSTRAINT approval_requests_id_key UNIQUE (id);

--
-- Name: approval_requests approval_requests_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_requests
    ADD CONSTRAINT approval_requests_pkey PRIMARY KEY (place);

--
-- Name: approval_shown approval_shown_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_shown
    ADD CONSTRAINT approval_shown_pkey PRIMARY KEY (request);

--
-- Name: approval_uses approval_uses_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.approval_uses
    ADD CONSTRAINT approval_uses_pkey PRIMARY KEY (request, turn);

--
-- Name: batches batches_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);

--
-- Name: budget_batches budget_batches_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.budget_batches
    ADD CONSTRAINT budget_batches_pkey PRIMARY KEY (id);

--
-- Name: budget_counters budget_counters_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.budget_counters
    ADD CONSTRAINT budget_counters_pkey PRIMARY KEY (agent, kind, name, tool);

--
-- Name: entries entries_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (agent, session, sequence);

--
-- Name: heads heads_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.heads
    ADD CONSTRAINT heads_pkey PRIMARY KEY (size);

--
-- Name: kept_calls kept_calls_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.kept_calls
    ADD CONSTRAINT kept_calls_pkey PRIMARY KEY (agent, session, tool, id);

--
-- Name: kv_entries kv_entries_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.kv_entries
    ADD CONSTRAINT kv_entries_pkey PRIMARY KEY (scope, key);

--
-- Name: kv_sizes kv_sizes_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.kv_sizes
    ADD CONSTRAINT kv_sizes_pkey PRIMARY KEY (scope);

--
-- Name: kv_writes kv_writes_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.kv_writes
    ADD CONSTRAINT kv_writes_pkey PRIMARY KEY (id);

--
-- Name: leases leases_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (id);

--
-- Name: ledger ledger_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (one);

--
-- Name: places places_agent_session_sequence_key; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.places
    ADD CONSTRAINT places_agent_session_sequence_key UNIQUE (agent, session, sequence);

--
-- Name: places places_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.places
    ADD CONSTRAINT places_pkey PRIMARY KEY (number);

--
-- Name: reservations reservations_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (id);

--
-- Name: state_acts state_acts_id_key; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.state_acts
    ADD CONSTRAINT state_acts_id_key UNIQUE (id);

--
-- Name: state_acts state_acts_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.state_acts
    ADD CONSTRAINT state_acts_pkey PRIMARY KEY (number);

--
-- Name: steps steps_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (number);

--
-- Name: thawed thawed_pkey; Type: CONSTRAINT; Schema: licet; Owner: -
--

ALTER TABLE ONLY licet.thawed
    ADD CONSTRAINT thawed_pkey PRIMARY KEY (id);

--
-- Name: answers_by_request; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX answers_by_request ON licet.approval_answers USING btree (request);

--
-- Name: approvals_by_expiry; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX approvals_by_expiry ON licet.approval_requests USING btree (expires);

--
-- Name: approvals_by_session; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX approvals_by_session ON licet.approval_requests USING btree (agent, session, expires);

--
-- Name: approvals_by_subject; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX approvals_by_subject ON licet.approval_requests USING btree (subject);

--
-- Name: entries_by_id; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX entries_by_id ON licet.entries USING btree (id);

--
-- Name: entries_by_xid; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX entries_by_xid ON licet.entries USING btree (xid);

--
-- Name: kept_calls_by_expiry; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX kept_calls_by_expiry ON licet.kept_calls USING btree (expires);

--
-- Name: kv_by_expiry; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX kv_by_expiry ON licet.kv_entries USING btree (expires) WHERE (expires IS NOT NULL);

--
-- Name: kv_by_writing; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX kv_by_writing ON licet.kv_writes USING btree (written);

--
-- Name: leases_by_expiry; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX leases_by_expiry ON licet.leases USING btree (expires);

--
-- Name: leases_by_owner; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX leases_by_owner ON licet.leases USING btree (owner);

--
-- Name: receipts_by_agent; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX receipts_by_agent ON licet.entries USING btree (agent, "time") WHERE (kind = 'receipt'::text);

--
-- Name: receipts_by_time; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX receipts_by_time ON licet.entries USING btree ("time") WHERE (kind = 'receipt'::text);

--
-- Name: receipts_by_tool; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX receipts_by_tool ON licet.entries USING btree (tool, "time") WHERE (kind = 'receipt'::text);

--
-- Name: receipts_by_verdict; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX receipts_by_verdict ON licet.entries USING btree (verdict, "time") WHERE (kind = 'receipt'::text);

--
-- Name: reservations_ended; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX reservations_ended ON licet.reservations USING btree (ended) WHERE (ended IS NOT NULL);

--
-- Name: reservations_open; Type: INDEX; Schema: licet; Owner: -
--

CREATE INDEX reservations_open ON licet.reservations USING btree (agent) WHERE (ended IS NULL);

--
-- Name: SCHEMA licet; Type: ACL; Schema: -; Owner: -
--

GRANT USAGE ON SCHEMA licet TO licet_runtime;

--
-- Name: FUNCTION add_state_act(id text, kind text, agent text, tool text, why text, ends text[], body bytea, node text, signature bytea); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.add_state_act(id text, kind text, agent text, tool text, why text, ends text[], body bytea, node text, signature bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.add_state_act(id text, kind text, agent text, tool text, why text, ends text[], body bytea, node text, signature bytea) TO licet_runtime;

--
-- Name: FUNCTION add_to_counters(agents text[], kinds text[], names text[], tools text[], more_calls bigint[], more_cost numeric[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.add_to_counters(agents text[], kinds text[], names text[], tools text[], more_calls bigint[], more_cost numeric[]) FROM PUBLIC;

--
-- Name: FUNCTION answer_approval(in_id text, in_request text, in_denies boolean, in_body bytea, in_node text, in_signature bytea); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.answer_approval(in_id text, in_request text, in_denies boolean, in_body bytea, in_node text, in_signature bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.answer_approval(in_id text, in_request text, in_denies boolean, in_body bytea, in_node text, in_signature bytea) TO licet_runtime;

--
-- Name: FUNCTION append_entries(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], taken boolean[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.append_entries(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], taken boolean[]) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.append_entries(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], taken boolean[]) TO licet_runtime;

--
-- Name: FUNCTION begin_call(its_agent text, its_session text, its_tool text, its_id text, its_receipt text, its_body bytea, its_signature bytea, alive_seconds double precision, kept_seconds double precision, OUT begun boolean, OUT runs boolean, OUT body bytea, OUT signature bytea, OUT data bytea); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.begin_call(its_agent text, its_session text, its_tool text, its_id text, its_receipt text, its_body bytea, its_signature bytea, alive_seconds double precision, kept_seconds double precision, OUT begun boolean, OUT runs boolean, OUT body bytea, OUT signature bytea, OUT data bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.begin_call(its_agent text, its_session text, its_tool text, its_id text, its_receipt text, its_body bytea, its_signature bytea, alive_seconds double precision, kept_seconds double precision, OUT begun boolean, OUT runs boolean, OUT body bytea, OUT signature bytea, OUT data bytea) TO licet_runtime;

--
-- Name: FUNCTION begin_leased(ids text[], numbers bigint[], calls integer[], spent numeric[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.begin_leased(ids text[], numbers bigint[], calls integer[], spent numeric[]) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.begin_leased(ids text[], numbers bigint[], calls integer[], spent numeric[]) TO licet_runtime;

--
-- Name: FUNCTION forget_approvals(in_now bigint, in_agent text, in_session text, in_most_expired integer, in_finished bigint); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.forget_approvals(in_now bigint, in_agent text, in_session text, in_most_expired integer, in_finished bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.forget_approvals(in_now bigint, in_agent text, in_session text, in_most_expired integer, in_finished bigint) TO licet_runtime;

--
-- Name: FUNCTION forget_reservations(seconds double precision); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.forget_reservations(seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.forget_reservations(seconds double precision) TO licet_runtime;

--
-- Name: FUNCTION freeze_lock(); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.freeze_lock() FROM PUBLIC;
GRANT ALL ON FUNCTION licet.freeze_lock() TO licet_runtime;

--
-- Name: FUNCTION frozen(agent text, tool text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.frozen(agent text, tool text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.frozen(agent text, tool text) TO licet_runtime;

--
-- Name: FUNCTION give_back_claim(in_request text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.give_back_claim(in_request text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.give_back_claim(in_request text) TO licet_runtime;

--
-- Name: FUNCTION kv_forget(at_scope bytea, moment double precision); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.kv_forget(at_scope bytea, moment double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.kv_forget(at_scope bytea, moment double precision) TO licet_runtime;

--
-- Name: FUNCTION kv_lock(scope bytea); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.kv_lock(scope bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.kv_lock(scope bytea) TO licet_runtime;

--
-- Name: FUNCTION kv_size(key bytea, value text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.kv_size(key bytea, value text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.kv_size(key bytea, value text) TO licet_runtime;

--
-- Name: FUNCTION kv_write(write uuid, at_scope bytea, at_key bytea, new_value text, ttl double precision, most bigint, moment double precision, ended bytea); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.kv_write(write uuid, at_scope bytea, at_key bytea, new_value text, ttl double precision, most bigint, moment double precision, ended bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.kv_write(write uuid, at_scope bytea, at_key bytea, new_value text, ttl double precision, most bigint, moment double precision, ended bytea) TO licet_runtime;

--
-- Name: FUNCTION open_approval(in_id text, in_subject text, in_agent text, in_session text, in_scope text, in_asked bigint, in_expires bigint, in_body bytea, in_node text, in_signature bytea, in_shown bytea, in_seen bigint, in_most_waiting integer, in_most_expired integer, in_finished bigint); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.open_approval(in_id text, in_subject text, in_agent text, in_session text, in_scope text, in_asked bigint, in_expires bigint, in_body bytea, in_node text, in_signature bytea, in_shown bytea, in_seen bigint, in_most_waiting integer, in_most_expired integer, in_finished bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.open_approval(in_id text, in_subject text, in_agent text, in_session text, in_scope text, in_asked bigint, in_expires bigint, in_body bytea, in_node text, in_signature bytea, in_shown bytea, in_seen bigint, in_most_waiting integer, in_most_expired integer, in_finished bigint) TO licet_runtime;

--
-- Name: FUNCTION open_calls(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], use_of integer[], uses text[], c_agents text[], c_kinds text[], c_names text[], c_tools text[], claim_ids text[], claim_of integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, block_of integer[], blocks text[], sum_ids text[], sum_numbers bigint[], sum_calls integer[], sum_spent numeric[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.open_calls(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], use_of integer[], uses text[], c_agents text[], c_kinds text[], c_names text[], c_tools text[], claim_ids text[], claim_of integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, block_of integer[], blocks text[], sum_ids text[], sum_numbers bigint[], sum_calls integer[], sum_spent numeric[]) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.open_calls(batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[], ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[], use_of integer[], uses text[], c_agents text[], c_kinds text[], c_names text[], c_tools text[], claim_ids text[], claim_of integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, block_of integer[], blocks text[], sum_ids text[], sum_numbers bigint[], sum_calls integer[], sum_spent numeric[]) TO licet_runtime;

--
-- Name: FUNCTION place_entries(after bigint, hashes bytea[], agents text[], sessions text[], sequences bigint[], head_size bigint, head_body bytea, head_signature bytea, head_frontier bytea, head_below text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.place_entries(after bigint, hashes bytea[], agents text[], sessions text[], sequences bigint[], head_size bigint, head_body bytea, head_signature bytea, head_frontier bytea, head_below text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.place_entries(after bigint, hashes bytea[], agents text[], sessions text[], sequences bigint[], head_size bigint, head_body bytea, head_signature bytea, head_frontier bytea, head_below text) TO licet_runtime;

--
-- Name: FUNCTION renew_leases(of_owner text, seconds double precision); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.renew_leases(of_owner text, seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.renew_leases(of_owner text, seconds double precision) TO licet_runtime;

--
-- Name: FUNCTION reserve(agents text[], kinds text[], names text[], tools text[], ids text[], of_call integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, node text, batch text, body bytea, signature bytea, skip boolean[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.reserve(agents text[], kinds text[], names text[], tools text[], ids text[], of_call integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, node text, batch text, body bytea, signature bytea, skip boolean[]) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.reserve(agents text[], kinds text[], names text[], tools text[], ids text[], of_call integer[], at_session integer[], at_tool integer[], at_day integer[], costs numeric[], wanted integer[], most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[], most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[], owner text, lease_seconds double precision, node text, batch text, body bytea, signature bytea, skip boolean[]) TO licet_runtime;

--
-- Name: FUNCTION settle(agents text[], kinds text[], names text[], tools text[], ids text[], at_session integer[], at_tool integer[], at_day integer[], reserved numeric[], costs numeric[], made_calls integer[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.settle(agents text[], kinds text[], names text[], tools text[], ids text[], at_session integer[], at_tool integer[], at_day integer[], reserved numeric[], costs numeric[], made_calls integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.settle(agents text[], kinds text[], names text[], tools text[], ids text[], at_session integer[], at_tool integer[], at_day integer[], reserved numeric[], costs numeric[], made_calls integer[]) TO licet_runtime;

--
-- Name: FUNCTION settle_expired(); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.settle_expired() FROM PUBLIC;
GRANT ALL ON FUNCTION licet.settle_expired() TO licet_runtime;

--
-- Name: FUNCTION take_back_approvals(in_request text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.take_back_approvals(in_request text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.take_back_approvals(in_request text) TO licet_runtime;

--
-- Name: FUNCTION take_counters(agents text[], kinds text[], names text[], tools text[]); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.take_counters(agents text[], kinds text[], names text[], tools text[]) FROM PUBLIC;

--
-- Name: FUNCTION take_turn(in_request text, in_turn text, in_call text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.take_turn(in_request text, in_turn text, in_call text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.take_turn(in_request text, in_turn text, in_call text) TO licet_runtime;

--
-- Name: FUNCTION use_approval(in_request text, in_call text); Type: ACL; Schema: licet; Owner: -
--

REVOKE ALL ON FUNCTION licet.use_approval(in_request text, in_call text) FROM PUBLIC;
GRANT ALL ON FUNCTION licet.use_approval(in_request text, in_call text) TO licet_runtime;

--
-- Name: TABLE approval_answers; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.approval_answers TO licet_runtime;

--
-- Name: TABLE approval_requests; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.approval_requests TO licet_runtime;

--
-- Name: TABLE approval_shown; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.approval_shown TO licet_runtime;

--
-- Name: TABLE approval_uses; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.approval_uses TO licet_runtime;

--
-- Name: TABLE batches; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.batches TO licet_runtime;

--
-- Name: TABLE budget_batches; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.budget_batches TO licet_runtime;

--
-- Name: TABLE budget_counters; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.budget_counters TO licet_runtime;

--
-- Name: TABLE entries; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.agent; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(agent) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.session; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(session) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.sequence; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(sequence) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.id; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(id) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.kind; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(kind) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.tool; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(tool) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.verdict; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(verdict) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries."time"; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT("time") ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.hash; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(hash) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.body; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(body) ON TABLE licet.entries TO licet_runtime;

--
-- Name: COLUMN entries.batch; Type: ACL; Schema: licet; Owner: -
--

GRANT INSERT(batch) ON TABLE licet.entries TO licet_runtime;

--
-- Name: TABLE heads; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.heads TO licet_runtime;

--
-- Name: TABLE kept_calls; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE licet.kept_calls TO licet_runtime;

--
-- Name: TABLE kv_entries; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE licet.kv_entries TO licet_runtime;

--
-- Name: TABLE kv_sizes; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE licet.kv_sizes TO licet_runtime;

--
-- Name: TABLE kv_writes; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE licet.kv_writes TO licet_runtime;

--
-- Name: TABLE leases; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.leases TO licet_runtime;

--
-- Name: TABLE ledger; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.ledger TO licet_runtime;

--
-- Name: TABLE places; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.places TO licet_runtime;

--
-- Name: TABLE reservations; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.reservations TO licet_runtime;

--
-- Name: TABLE state_acts; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.state_acts TO licet_runtime;

--
-- Name: TABLE steps; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT ON TABLE licet.steps TO licet_runtime;

--
-- Name: TABLE thawed; Type: ACL; Schema: licet; Owner: -
--

GRANT SELECT,INSERT ON TABLE licet.thawed TO licet_runtime;

--
-- PostgreSQL database dump complete
--


