package store

import "github.com/exeunt/exeunt/sqldb"

// minSet is the smallest set of effects: fewer are cheaper one by one.
const minSet = 4

// statements turns effects into the statements that write them. A run of effects of one type
// becomes a few statements for all of them where the engine can: on PostgreSQL a statement costs
// several times what a row costs, and its triggers run once.
type statements struct {
	engine  sqldb.Engine
	archive archivist
	lives   lifetimes
	// keepExpiries leaves the expiry rows of removed Events until they are due: the collector
	// may remove many.
	keepExpiries bool

	queued   sqldb.Batch
	archived int64 // bytes that the effects add to the archive
}

// addAll adds the statements of effects with consecutive revisions, in their order.
func (q *statements) addAll(effects []*effect) {
	for len(effects) > 0 {
		n := 1
		for n < len(effects) && effects[n].Type == effects[0].Type {
			n++
		}
		q.add(effects[:n])
		effects = effects[n:]
	}
}

// add is addAll for effects of one type.
func (q *statements) add(run []*effect) {
	if len(run) == 0 {
		return
	}
	switch run[0].Type {
	case Removed:
		q.supersede(run)
		q.addRemovals(run)
	case Updated:
		q.addRewrites(run)
	default:
		q.addCreates(run)
	}
	for _, f := range run {
		if f.Type != Removed || !q.keepExpiries {
			q.lives.queue(&q.queued, f)
		}
	}
}

// addEach adds statements for each effect.
func (q *statements) addEach(run []*effect) {
	for _, f := range run {
		q.archived += f.queue(&q.queued, q.archive)
	}
}

// ids is the list of ids as the engine's statements take it.
func (q *statements) ids(run []*effect) any {
	ids := make([]int64, len(run))
	for i, f := range run {
		ids[i] = f.id
	}
	return sqldb.List(q.engine, ids)
}
