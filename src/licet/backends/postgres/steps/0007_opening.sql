-- The one transaction before calls: frozen? approval used, budget set aside, decision kept. One round trip for a batch.
-- Of each call either everything is done or nothing, and the batch that is sent again has the same effect and answer.
--
-- Calls are the entries of `licet.append_entries`, with its arguments first. Then come, with the number of their call:
-- the approvals that it uses, the claims of `licet.reserve`, and the blocks that it takes from, whose sums are those of
-- `licet.begin_leased`. The answer has a row for each call: `opened`, `frozen` and why, `used` and which approval,
-- `exceeded`, `ended` and which block, or `moved` (its session goes on from another entry, or an earlier call of the
-- session was not opened: nothing of the call was kept, it is linked anew and asked again); then one for each claim of an
-- opened call.
CREATE FUNCTION licet.open_calls(
    batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[],
    ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[],
    use_of integer[], uses text[],
    c_agents text[], c_kinds text[], c_names text[], c_tools text[],
    claim_ids text[], claim_of integer[], at_session integer[], at_tool integer[], at_day integer[],
    costs numeric[], wanted integer[],
    most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[],
    most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[],
    owner text, lease_seconds double precision,
    block_of integer[], blocks text[], sum_ids text[], sum_numbers bigint[], sum_calls integer[], sum_spent numeric[]
) RETURNS TABLE (
    call integer, claim integer, state text, detail text, tail_sequence bigint, tail_hash bytea,
    granted integer, session_calls bigint, session_cost numeric, tool_calls bigint, tool_cost numeric,
    day_calls bigint, day_cost numeric
) LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
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

REVOKE ALL ON FUNCTION licet.open_calls FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.open_calls TO licet_runtime;
