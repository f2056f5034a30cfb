PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE days (
    agent TEXT NOT NULL, day TEXT NOT NULL, cost_usd TEXT NOT NULL, calls INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, day)
) WITHOUT ROWID;
INSERT INTO "days" VALUES('desk','2026-03-04','1.5',14);
CREATE TABLE held (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, day TEXT NOT NULL,
    cost_usd TEXT NOT NULL, since TEXT NOT NULL, process TEXT NOT NULL, lost TEXT
) WITHOUT ROWID;
INSERT INTO "held" VALUES('b-3e4fa5ebbf5eacd1','desk','crashed','pay','2026-03-04','0.25','2026-03-04T12:00:00+00:00','',NULL);
INSERT INTO "held" VALUES('b-8895bab6102a64ff','desk','line','pay','2026-03-04','0.25','2026-03-04T12:00:00+00:00','',NULL);
CREATE TABLE sessions (
    agent TEXT NOT NULL, session TEXT NOT NULL, calls INTEGER NOT NULL, cost_usd TEXT NOT NULL,
    PRIMARY KEY (agent, session)
) WITHOUT ROWID;
INSERT INTO "sessions" VALUES('desk','counting',1,'0');
INSERT INTO "sessions" VALUES('desk','crashed',1,'0.25');
INSERT INTO "sessions" VALUES('desk','kept',2,'0.5');
INSERT INTO "sessions" VALUES('desk','line',1,'0.25');
INSERT INTO "sessions" VALUES('desk','main',6,'0');
INSERT INTO "sessions" VALUES('desk','over',1,'0');
INSERT INTO "sessions" VALUES('desk','spent',2,'0.5');
CREATE TABLE tools (
    agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL,
    cost_usd TEXT NOT NULL DEFAULT '0', PRIMARY KEY (agent, session, tool)
) WITHOUT ROWID;
INSERT INTO "tools" VALUES('desk','counting','count',1,'0');
INSERT INTO "tools" VALUES('desk','crashed','pay',1,'0.25');
INSERT INTO "tools" VALUES('desk','kept','pay',2,'0.5');
INSERT INTO "tools" VALUES('desk','line','pay',1,'0.25');
INSERT INTO "tools" VALUES('desk','main','fail',1,'0');
INSERT INTO "tools" VALUES('desk','main','jot',1,'0');
INSERT INTO "tools" VALUES('desk','main','look',3,'0');
INSERT INTO "tools" VALUES('desk','main','note',1,'0');
INSERT INTO "tools" VALUES('desk','over','count',1,'0');
INSERT INTO "tools" VALUES('desk','spent','pay',2,'0.5');
COMMIT;
PRAGMA application_id = 1818846050;
PRAGMA user_version = 2;
