package sqldb

import "encoding/json"

const (
	markTracesSQLite     = `INSERT INTO trace_marks (subject, traceparent) SELECT key, value FROM json_each($1)`
	unmarkTracesSQLite   = `DELETE FROM trace_marks`
	markTracesPostgres   = `SELECT set_config('exeunt.traces', $1, true)`
	unmarkTracesPostgres = `SELECT set_config('exeunt.traces', '', true)`
)

// MarkTraces adds the statement that gives the rows that the transaction enqueues from
// here on a traceparent, by the uid of the object that is deleted; the empty uid means all
// other rows. UnmarkTraces must follow in the same transaction. The triggers are in
// sqldb/schema/sqlite/0010_trace.sql.
func (b *Batch) MarkTraces(engine Engine, traces map[string]string) {
	list, err := json.Marshal(traces)
	if err != nil {
		panic(err) // a map of strings is always valid
	}
	if engine == Postgres {
		b.Exec(markTracesPostgres, string(list))
		return
	}
	b.Exec(markTracesSQLite, string(list))
}

// UnmarkTraces ends MarkTraces.
func (b *Batch) UnmarkTraces(engine Engine) {
	if engine == Postgres {
		b.Exec(unmarkTracesPostgres)
		return
	}
	b.Exec(unmarkTracesSQLite)
}
