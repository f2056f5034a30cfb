-- The ledger: entries in a chain for each session, written by many nodes; their places in the Merkle tree, which one
-- sequencer gives them afterwards; and the signed heads of that tree. Nothing here is changed or deleted: the role of
-- licet may only insert. Texts are compared byte by byte.
CREATE TABLE licet.ledger (
    one boolean PRIMARY KEY DEFAULT true CHECK (one), id text NOT NULL, key text NOT NULL,
    begun timestamptz NOT NULL DEFAULT now(),
    gone text NOT NULL DEFAULT ''  -- where the ledger was moved to; it takes no entries then
);

-- What a node has signed at once: the hashes of entries, one after the other. It may have signed an entry that was not
-- kept, because another node was first in the session: it linked that entry anew, and signed another batch.
CREATE TABLE licet.batches (id bytea PRIMARY KEY, node text NOT NULL, hashes bytea NOT NULL, signature bytea NOT NULL);

-- Two nodes cannot fork a session: its sequence is the primary key. Only the body is signed; the other columns are
-- indexes. `xid` is the order of the sequencer, and a node cannot choose it.
CREATE TABLE licet.entries (
    agent text COLLATE "C" NOT NULL, session text COLLATE "C" NOT NULL, sequence bigint NOT NULL,
    id text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL,
    verdict text COLLATE "C" NOT NULL, time text COLLATE "C" NOT NULL,
    hash bytea NOT NULL, body bytea NOT NULL, batch bytea NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (agent, session, sequence)
) WITH (toast_tuple_target = 8160);
ALTER TABLE licet.entries ALTER COLUMN body SET STORAGE EXTERNAL;  -- to compress takes longer than to write
CREATE INDEX entries_by_id ON licet.entries (id);
CREATE INDEX entries_by_xid ON licet.entries (xid);
CREATE INDEX receipts_by_time ON licet.entries (time) WHERE kind = 'receipt';
CREATE INDEX receipts_by_agent ON licet.entries (agent, time) WHERE kind = 'receipt';
CREATE INDEX receipts_by_tool ON licet.entries (tool, time) WHERE kind = 'receipt';
CREATE INDEX receipts_by_verdict ON licet.entries (verdict, time) WHERE kind = 'receipt';

-- The number of each entry in the tree, from 1. Entries are found from here by agent, session and sequence.
CREATE TABLE licet.places (
    number bigint PRIMARY KEY, hash bytea NOT NULL,
    agent text COLLATE "C" NOT NULL, session text COLLATE "C" NOT NULL, sequence bigint NOT NULL,
    UNIQUE (agent, session, sequence)
);

-- Signed heads are the checkpoints of the ledger. `frontier` is the right edge of the tree, whose root is signed.
-- Every entry of a transaction before `below` has its place, or is held back for what is wrong with it.
CREATE TABLE licet.heads (
    size bigint PRIMARY KEY, body bytea NOT NULL, signature bytea NOT NULL, frontier bytea NOT NULL,
    below xid8 NOT NULL, signed timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Keep a batch of entries, session by session: all entries that it has of a session, or none of them, because another
-- node was first. Of those sessions it returns how they end now; the node links its entries to that, and signs another
-- batch. The same batch sent again has no effect, and the same answer.
--
-- One element for each entry, and the entries of a session in order. `previous` is the hash that the first entry of a
-- session in this batch links to, empty at the start of a session, and null for those after it. Where `taken` is given
-- and false, an entry is left out, and so must be those after it in its session.
CREATE FUNCTION licet.append_entries(
    batch_id bytea, by_node text, signed bytea, agents text[], sessions text[], sequences bigint[], previous bytea[],
    ids text[], kinds text[], tools text[], verdicts text[], times text[], given_hashes bytea[], bodies bytea[],
    taken boolean[] DEFAULT NULL
) RETURNS TABLE (lost_agent text, lost_session text, tail_sequence bigint, tail_hash bytea)
LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
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

-- Give entries the next places, and keep the head that was signed over them; false if that was not the newest head any
-- more. One sequencer at a time: a statement after the lock sees what another one has written.
CREATE FUNCTION licet.place_entries(
    after bigint, hashes bytea[], agents text[], sessions text[], sequences bigint[],
    head_size bigint, head_body bytea, head_signature bytea, head_frontier bytea, head_below text
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = licet, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
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

GRANT SELECT ON licet.ledger, licet.batches, licet.entries, licet.places, licet.heads TO licet_runtime;
GRANT INSERT ON licet.ledger, licet.batches, licet.places, licet.heads TO licet_runtime;
GRANT INSERT (agent, session, sequence, id, kind, tool, verdict, time, hash, body, batch)
    ON licet.entries TO licet_runtime;
REVOKE ALL ON FUNCTION licet.append_entries, licet.place_entries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION licet.append_entries, licet.place_entries TO licet_runtime;
