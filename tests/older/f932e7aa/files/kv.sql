PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE entries (
    scope TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, expires REAL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
INSERT INTO "entries" VALUES('licet:ended',X'6465736B0A6F766572','true',NULL);
INSERT INTO "entries" VALUES('licet:ended',X'73657373696F6E3A6F766572406465736B','true',NULL);
INSERT INTO "entries" VALUES('personality/desk',X'636F6C6F7572','{"name":"blue"}',NULL);
INSERT INTO "entries" VALUES('personality/desk',X'676F6E65','1',1772626800.0);
INSERT INTO "entries" VALUES('session:counting@desk',X'746F74616C','2',NULL);
CREATE TABLE sizes (scope TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "sizes" VALUES('licet:ended',162);
INSERT INTO "sizes" VALUES('personality/desk',154);
INSERT INTO "sizes" VALUES('session:counting@desk',70);
CREATE INDEX by_expiry ON entries (expires) WHERE expires IS NOT NULL;
COMMIT;
PRAGMA application_id = 1818846059;
PRAGMA user_version = 3;
