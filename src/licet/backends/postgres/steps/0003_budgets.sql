-- Budgets. A counter has what was spent and set aside, for a session, for a tool in it, or for a day of an agent; `kind`
-- says which. Only the functions below write. Every transaction takes counters in the order of their keys, so none
-- waits for one that waits for it, and it takes each once, however many calls it is for.
CREATE TABLE licet.budget_counters (
    agent text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL CHECK (kind IN ('session', 'tool', 'day')),
    name text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL DEFAULT '',
    calls bigint NOT NULL DEFAULT 0, cost_usd numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, kind, name, tool)
) WITH (fillfactor = 60);
-- What a node asked for at once, signed by it: the body lists each reservation. A reservation that was made together
-- with its decision has no row here, since the node has signed the decision.
CREATE TABLE licet.budget_batches (
    id text PRIMARY KEY, node text NOT NULL, body bytea NOT NULL, signature bytea NOT NULL,
    made timestamptz NOT NULL DEFAULT now()
);
-- A reservation keeps its row for a while after it has ended: a request that is sent again, or that a lost connection
-- left behind at the server, finds that it was done. `calls` is 1, or more if it is a block that a node has leased.
CREATE TABLE licet.reservations (
    id text PRIMARY KEY, agent text NOT NULL, session text NOT NULL, tool text NOT NULL, day text NOT NULL,
    calls integer NOT NULL CHECK (calls > 0), cost_usd numeric NOT NULL CHECK (cost_usd >= 0),
    session_calls bigint NOT NULL, session_cost numeric NOT NULL, tool_calls bigint NOT NULL,
    tool_cost numeric NOT NULL, day_calls bigint NOT NULL, day_cost numeric NOT NULL,
    batch text, made xid8 NOT NULL DEFAULT pg_current_xact_id(), ended timestamptz
);
CREATE INDEX reservations_open ON licet.reservations (agent) WHERE ended IS NULL;
CREATE INDEX reservations_ended ON licet.reservations (ended) WHERE ended IS NOT NULL;
-- A block that a process of a node spends from, and what its calls that began have taken from it: `number` counts the
-- sums, so that a late one changes nothing. After `expires`, others may end the block at that sum.
CREATE TABLE licet.leases (
    id text PRIMARY KEY, node text NOT NULL, owner text NOT NULL, expires timestamptz NOT NULL,
    most_calls integer NOT NULL, amount numeric NOT NULL, number bigint NOT NULL DEFAULT 0,
    calls integer NOT NULL DEFAULT 0 CHECK (calls BETWEEN 0 AND most_calls),
    spent numeric NOT NULL DEFAULT 0 CHECK (spent BETWEEN 0 AND amount)
) WITH (fillfactor = 60);
CREATE INDEX leases_by_expiry ON licet.leases (expires);
CREATE INDEX leases_by_owner ON licet.leases (owner);

-- A plan is made when a connection first uses a function, perhaps while the tables are empty, and stays: one that reads
-- a whole table would be slower with every call. And to compile one, or to plan for each length of an array, takes
-- longer than it runs. Hence the settings.

-- Take counters, in the order in which they are given, which is that of their keys.
CREATE FUNCTION licet.take_counters(agents text[], kinds text[], names text[], tools text[])
RETURNS TABLE (place integer, calls bigint, cost_usd numeric)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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

CREATE FUNCTION licet.add_to_counters(
    agents text[], kinds text[], names text[], tools text[], more_calls bigint[], more_cost numeric[]
) RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    UPDATE budget_counters AS c SET calls = c.calls + k.calls, cost_usd = c.cost_usd + k.cost_usd
    FROM unnest(agents, kinds, names, tools, more_calls, more_cost)
        AS k (agent, kind, name, tool, calls, cost_usd)
    WHERE c.agent = k.agent AND c.kind = k.kind AND c.name = k.name AND c.tool = k.tool
        AND (k.calls <> 0 OR k.cost_usd <> 0);
END $$;

-- Set aside what calls claim, in the order of the claims. Claims of one call have the same number in `of_call` and
-- follow each other: all of them are taken, or none. `at_…` are places in the arrays of counters, and `most_…` the
-- limits; null is no limit. For each claim: how many calls were granted (none if a limit would be exceeded), and what
-- was spent before. A claim that `wanted` more than one is a block: never more than an eighth of what remains, so
-- blocks shrink towards the end, down to a single call. Claims that `skip` names are not taken.
CREATE FUNCTION licet.reserve(
    agents text[], kinds text[], names text[], tools text[],
    ids text[], of_call integer[], at_session integer[], at_tool integer[], at_day integer[],
    costs numeric[], wanted integer[],
    most_session_calls bigint[], most_day_calls bigint[], most_tool_calls bigint[],
    most_session_cost numeric[], most_day_cost numeric[], most_tool_cost numeric[],
    owner text, lease_seconds double precision, node text, batch text, body bytea, signature bytea,
    skip boolean[] DEFAULT NULL
) RETURNS TABLE (
    granted integer, session_calls bigint, session_cost numeric, tool_calls bigint, tool_cost numeric,
    day_calls bigint, day_cost numeric
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
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

-- End reservations at what was really spent, once: `made_calls` is 0 for one that is given back. The second time, and
-- for one that is not there, nothing happens. Returns the places of those that are not as the node says, with what was
-- set aside: these stay open.
CREATE FUNCTION licet.settle(
    agents text[], kinds text[], names text[], tools text[],
    ids text[], at_session integer[], at_tool integer[], at_day integer[],
    reserved numeric[], costs numeric[], made_calls integer[]
) RETURNS TABLE (place integer, cost_usd numeric)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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

-- Write down what calls take from blocks, before they begin. Returns the blocks that are still there: from any other,
-- no call may begin. Like every transaction here, one that also takes counters takes those first.
CREATE FUNCTION licet.begin_leased(ids text[], numbers bigint[], calls integer[], spent numeric[]) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM leases AS l WHERE l.id = ANY (ids) ORDER BY l.id FOR UPDATE;
    RETURN QUERY SELECT l.id FROM leases AS l WHERE l.id = ANY (ids);
    UPDATE leases AS l SET number = u.number, calls = u.calls, spent = u.spent
    FROM unnest($1, $2, $3, $4) AS u (id, number, calls, spent)
    WHERE l.id = u.id AND l.number < u.number;
END $$;

-- Go on with the blocks of a process; returns those that are still there.
CREATE FUNCTION licet.renew_leases(of_owner text, seconds double precision) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM FROM leases AS l WHERE l.owner = of_owner ORDER BY l.id FOR UPDATE;
    RETURN QUERY
        UPDATE leases AS l SET expires = clock_timestamp() + make_interval(secs => seconds)
        WHERE l.owner = of_owner RETURNING l.id;
END $$;

-- End one block of a process that has died, at what its calls have taken. Returns its id, or null if there is none.
CREATE FUNCTION licet.settle_expired() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
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

-- Forget what ended long ago: nothing that was sent then can still arrive.
CREATE FUNCTION licet.forget_reservations(seconds double precision) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = licet, pg_temp AS $$
    DELETE FROM reservations WHERE ended < clock_timestamp() - make_interval(secs => seconds);
    DELETE FROM budget_batches AS b WHERE b.made < clock_timestamp() - make_interval(secs => seconds)
        AND NOT EXISTS (SELECT FROM reservations AS r WHERE r.ended IS NULL AND r.batch = b.id);
$$;

REVOKE ALL ON FUNCTION licet.add_to_counters, licet.take_counters, licet.reserve, licet.settle, licet.begin_leased,
    licet.renew_leases, licet.settle_expired, licet.forget_reservations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.reserve, licet.settle, licet.begin_leased, licet.renew_leases, licet.settle_expired,
    licet.forget_reservations TO licet_runtime;
GRANT SELECT ON licet.budget_counters, licet.budget_batches, licet.reservations, licet.leases TO licet_runtime;
