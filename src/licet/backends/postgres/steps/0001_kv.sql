-- Small values by key, in scopes that licet names; `bytes` is their size with the overhead of each, for the limit.
CREATE TABLE licet.kv_entries (
    scope text NOT NULL, key bytea NOT NULL, value text NOT NULL, expires timestamptz,
    PRIMARY KEY (scope, key)
);
CREATE INDEX kv_by_expiry ON licet.kv_entries (expires) WHERE expires IS NOT NULL;
CREATE TABLE licet.kv_sizes (scope text PRIMARY KEY, bytes bigint NOT NULL);
GRANT SELECT, INSERT, UPDATE, DELETE ON licet.kv_entries, licet.kv_sizes TO licet_runtime;
